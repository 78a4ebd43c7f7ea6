"""The table of docs/kernels.md is what the kernels do; the door opens without JAX; zero rows have finite gradients."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import gemjax
from gemjax.kernels.linalg import orthonormal_basis, unit_rows
from gemjax.kernels.retention import action_alignment, centroid_similarity
from gemjax.kernels.selection import residual_completion
from gemjax.kernels.sensitivity import token_norms
from gemjax.kernels.spectrum import centered_spectrum, effective_rank
from tests.kernels import capabilities
from tests.kernels.problems import enable_x64


@pytest.mark.parametrize("name", list(capabilities.CASES))
def test_the_pages_table_is_what_the_kernels_do(name: str) -> None:
    assert capabilities.on_page()[name] == capabilities.row(name)


def test_the_table_has_every_public_kernel_once_in_the_order_of_the_modules() -> None:
    assert list(capabilities.on_page()) == capabilities.public()
    assert set(capabilities.CASES) | set(capabilities.EXEMPT) == set(capabilities.public())


MODULES = {name: module for name, module in gemjax.kernels._PUBLIC.items() if name in capabilities.CASES}


@pytest.mark.parametrize("module", sorted(set(MODULES.values())))
def test_batches_are_their_items_and_gradients_are_differences(module: str) -> None:
    """All kernels of a module in one program for each question: fewer programs to compile."""
    names = [name for name in MODULES if MODULES[name] == module]
    grads = {name: line.split(" | ")[3] for name, line in capabilities.on_page().items()}
    with enable_x64(True):
        cases = {name: capabilities.CASES[name] for name in names}
        batches = {name: capabilities.batch_of(case) for name, case in cases.items()}
        batches = {name: batch for name, batch in batches.items() if batch}

        def every(items):
            return {name: cases[name].call(*item) for name, item in items.items()}

        alone = jax.jit(every)
        together = jax.jit(jax.vmap(every))(batches)
        for i in (0, 1):
            one = alone(jax.tree.map(lambda leaf, i=i: leaf[i], batches))
            for got, want in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
                # float64 sums of a dozen terms in another order, of values of size 10.
                np.testing.assert_allclose(got[i], want, rtol=1e-11, atol=1e-11)

        for mode, words in (("fwd", ("both", "forward")), ("rev", ("both", "reverse"))):
            parts = {name: capabilities.moving(cases[name]) for name in names if grads[name] in words}
            if not parts:
                continue

            @jax.jit
            def moved(at, parts=parts):
                return {name: part.call(*at[name]) for name, part in parts.items()}

            at = {name: part.at for name, part in parts.items()}
            # Differences with a step of 1e-6 in float64 are right to 1e-8 of a slope of size 10.
            check_grads(moved, (at,), order=1, modes=[mode], atol=1e-6, rtol=1e-6, eps=1e-6)


def test_the_door_opens_without_jax() -> None:
    code = (
        "import sys, gemjax; gemjax.kernels.__all__; import gemjax.kernels.host; assert 'jax' not in sys.modules; "
        "assert callable(gemjax.kernels.residual_completion) and 'jax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'residual_competition'"):
        gemjax.kernels.residual_competition  # noqa: B018
    assert "kernels" in dir(gemjax) and "coverage" in dir(gemjax.kernels)


ROWS = np.array([[3, 4, 0], [0, 0, 0], [1e-30, 0, 0], [1, 2, 2]], np.float32)


def test_gradients_are_finite_at_zero_rows() -> None:
    mask = np.array([True, True, False, True])
    directions = jax.jacobian(unit_rows)(jnp.asarray(ROWS))
    lengths = jax.jacobian(token_norms)(jnp.asarray(ROWS))
    assert not np.any(directions[1]) and not np.any(lengths[1])
    np.testing.assert_allclose(lengths[0, 0], [0.6, 0.8, 0], rtol=1e-6)
    # (I - u u') / |x|, which float32 still holds for the row of length 1e-30.
    np.testing.assert_allclose(directions[2, :, 2], np.diag([0, 1e30, 1e30]), rtol=1e-6)
    for rows in (ROWS, ROWS * 0, np.concatenate([ROWS[:1], -ROWS[:1]] * 2)):
        gradient = jax.grad(lambda x: centroid_similarity(x, mask).value)(jnp.asarray(rows))
        assert np.isfinite(gradient).all()


def test_gradients_are_finite_where_a_ratio_is_not_defined() -> None:
    spectrum = centered_spectrum(np.eye(2, 3, dtype=np.float32))  # one direction, all of it dominant
    gradient = jax.grad(lambda x: action_alignment(x, x[0], spectrum).value.sum())(jnp.eye(2, 3))
    assert np.isfinite(gradient).all()
    assert np.isfinite(jax.grad(effective_rank)(jnp.zeros(3))).all()
    assert np.isfinite(jax.grad(effective_rank)(jnp.asarray([2.0, 1.0, 0.0]))).all()


def test_a_loop_of_unknown_length_says_that_it_has_no_reverse_mode_and_what_has() -> None:
    x, every = jnp.asarray(ROWS), np.ones(4, bool)
    message = r"`{}` has no reverse-mode gradient: it loops until the data say stop .*jax\.jvp"
    with pytest.raises(ValueError, match=message.format("orthonormal_basis")):
        jax.grad(lambda x: orthonormal_basis(x, every, max_rank=3).vectors.sum())(x)
    with pytest.raises(ValueError, match=message.format("residual_completion")):
        jax.jit(jax.grad(lambda x: residual_completion(x, ~every, every, every, 2, 2.0, max_rank=3).coverage))(x)
    # The choice itself has no gradient to ask for.
    held = jax.grad(lambda x: jnp.sum(x[residual_completion(x, ~every, every, every, 1, 2.0, max_rank=3).order[0]]))(x)
    assert held.sum() == 3
