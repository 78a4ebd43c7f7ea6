"""Packing: every token goes somewhere once, rows stay full, shapes stay few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.encoders.packing import batch_sizes, pack, row_widths


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[np.ndarray], int, int]:
    window = draw(st.sampled_from([1, 5, 40, 64, 100, 256, 512]))
    budget = draw(st.sampled_from([64, 1024, 16384]))
    lengths = draw(st.lists(st.integers(1, window), max_size=60))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return [rng.integers(1, 30_000, n).astype(np.int32) for n in lengths], window, budget


@settings(deadline=None, max_examples=200)
@given(problems())
def test_every_sequence_lies_in_one_place_whole(problem: tuple[list[np.ndarray], int, int]) -> None:
    sequences, window, budget = problem
    seen = []
    for batch in pack(sequences, window=window, token_budget=budget):
        assert batch.ids.shape == batch.positions.shape == batch.segments.shape
        assert all(part.dtype == np.int32 for part in (batch.ids, batch.positions, batch.segments))
        covered = np.zeros(batch.ids.shape, int)
        for member, (row, slot) in zip(batch.members, batch.places, strict=True):
            here = batch.segments[row] == slot
            np.testing.assert_array_equal(batch.ids[row, here], sequences[member])
            np.testing.assert_array_equal(batch.positions[row, here], np.arange(len(sequences[member])))
            assert np.flatnonzero(here)[-1] - np.flatnonzero(here)[0] + 1 == len(sequences[member])
            covered[row] += here
            seen.append(int(member))
        assert ((covered == 1) == (batch.segments >= 0)).all() and covered.max(initial=0) <= 1
        assert not batch.ids[batch.segments < 0].any()
    assert sorted(seen) == list(range(len(sequences)))


@settings(deadline=None, max_examples=100)
@given(problems())
def test_shapes_come_from_a_short_list_and_the_order_of_work_is_fixed(
    problem: tuple[list[np.ndarray], int, int],
) -> None:
    sequences, window, budget = problem
    wide = row_widths(window)
    allowed = {(n, w) for w in wide for n in batch_sizes(w, budget)} | {(1, w) for w in (64, 128) if w < wide[0]}
    batches = list(pack(sequences, window=window, token_budget=budget))
    assert {batch.ids.shape for batch in batches} <= allowed
    again = list(pack(sequences, window=window, token_budget=budget))
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.places, other.places)


@settings(deadline=None, max_examples=100)
@given(problems())
def test_rows_are_more_than_half_full(problem: tuple[list[np.ndarray], int, int]) -> None:
    sequences, window, _ = problem
    # Best fit never opens a row while another has room, so at most one row of a width is at most half full.
    rows = [row for batch in pack(sequences, window=window, token_budget=64) for row in batch.segments]
    for width in row_widths(window):
        full = [(row >= 0).sum() for row in rows if len(row) == width]
        assert sum(count <= width // 2 for count in full) <= 1


def test_a_cpu_with_a_window_of_256_meets_four_shapes() -> None:
    allowed = {(n, 256) for n in batch_sizes(256, 1024)} | {(1, 64), (1, 128)}
    assert len(allowed) == 4


@pytest.mark.parametrize("count", [1, 2, 5, 23, 64])
def test_full_rows_are_batched_without_padding_rows(count: int) -> None:
    batches = list(pack([np.ones(256, np.int32)] * count, window=256, token_budget=4096))
    assert sum(len(batch.ids) for batch in batches) == count
