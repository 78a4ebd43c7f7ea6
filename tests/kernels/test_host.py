"""What the host does before arrays reach a kernel."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gemjax.kernels.host import matvec


@given(st.integers(0, 2500), st.integers(1, 400), st.sampled_from([np.float32, np.float64]), st.integers(0, 99))
def test_a_product_in_parts_is_the_product(n, d, dtype, seed):
    rng = np.random.default_rng(seed)
    rows, vector = rng.standard_normal((n, d)).astype(dtype), rng.standard_normal(d).astype(dtype)
    found = matvec(rows, vector)
    exact = rows.astype(np.float64) @ vector.astype(np.float64)
    assert found.shape == (n,) and found.dtype == dtype
    bound = 4 * d * np.finfo(dtype).eps * np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    assert (np.abs(found - exact) <= bound + 1e-30).all()
