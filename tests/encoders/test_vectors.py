"""The check of what encoders return, and the pooling of chunks, against plain float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gemjax.encoders.vectors import mean_of_chunks, unit_vectors
from gemjax.errors import EncoderError

shapes = st.sampled_from([(1, 1), (2, 3), (5, 8)])


@settings(deadline=None)
@given(
    st.one_of(
        hnp.arrays(np.float64, shapes, elements=st.floats(-1e300, 1e300)),
        hnp.arrays(np.float32, shapes, elements=st.floats(-(2.0**127), 2.0**127, width=32)),
        hnp.arrays(np.float16, shapes, elements=st.floats(-60000, 60000, width=16)),
        hnp.arrays(np.int64, shapes, elements=st.integers(-(2**62), 2**62)),
    )
)
def test_rows_become_unit_length_in_their_direction_or_stay_zero(raw: np.ndarray) -> None:
    out = unit_vectors(raw, len(raw), "x", raw.shape[1])
    assert out.dtype == np.float32 and out.shape == raw.shape
    for given_row, row in zip(raw.astype(np.longdouble), out.astype(np.longdouble), strict=True):
        if not given_row.any():
            assert not row.any()
            continue
        # One rounding to float32 an entry: 6e-8 of the entry, at most 6e-8 of the norm.
        np.testing.assert_allclose(np.linalg.norm(row), 1, rtol=0, atol=1e-6)
        scaled = given_row / np.abs(given_row).max()
        np.testing.assert_allclose(row, scaled / np.sqrt((scaled * scaled).sum()), rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "no array|real numbers"),
        ([["a", "b"], ["c", "d"]], "real numbers"),
        ([[1.0], [1.0, 2.0]], "no array"),
        (np.ones((2, 3), complex), "complex128"),
        (np.ones((2, 3), bool), "bool"),
        (np.ones(3), r"shape \[3\] for 2 texts; expected \[2, 3\]"),
        (np.ones((3, 3)), r"shape \[3, 3\] for 2 texts"),
        (np.ones((2, 4)), r"shape \[2, 4\] for 2 texts"),
        (np.ones((2, 3, 1)), r"shape \[2, 3, 1\]"),
        (np.array([[1, 2, 3], [1, np.nan, 3]]), "not finite in row 1 of 2"),
        (np.array([[np.inf, 2, 3], [1, 2, 3]]), "not finite in row 0 of 2"),
    ],
)
def test_anything_else_is_refused_saying_what_came(raw: Any, message: str) -> None:
    with pytest.raises(EncoderError, match=f"encoder 'mine' returned .*({message})"):
        unit_vectors(raw, 2, "mine", 3)


def test_vectors_without_entries_are_refused() -> None:
    with pytest.raises(EncoderError, match=r"shape \[2, 0\] for 2 texts; expected \[2, dim\]"):
        unit_vectors(np.ones((2, 0)), 2, "mine")


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 999))
def test_chunks_are_averaged_by_length(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(counts)), counts)
    vectors = unit_vectors(rng.standard_normal((len(owners), 5)), len(owners), "x")
    lengths = rng.integers(1, 300, len(owners))
    out = mean_of_chunks(vectors, lengths, owners, len(counts))
    for text, row in enumerate(out):
        mine = owners == text
        want = (vectors[mine].astype(np.float64) * lengths[mine, None]).sum(0)
        np.testing.assert_allclose(row, want / np.linalg.norm(want), rtol=0, atol=2e-7)
        if mine.sum() == 1:
            np.testing.assert_array_equal(row, vectors[mine][0])


def test_chunks_that_cancel_have_no_direction() -> None:
    one = np.array([[0.6, 0.8], [-0.6, -0.8], [1, 0]], np.float32)
    out = mean_of_chunks(one, np.array([7, 7, 0]), np.array([0, 0, 1]), 2)
    np.testing.assert_array_equal(out, [[0, 0], [1, 0]])
