"""Memory search, refit and distances: paired with FAISS, scikit-learn and SciPy on the same data, threads and run.

    python -m pytest bench/bench_memory.py --benchmark-enable --benchmark-only -s
    python bench/bench_memory.py            the paired comparisons, printed; no pytest needed

FAISS's wheel and XLA both use every core they may; pin them alike with `taskset`. N = 400,000 unit rows, d = 384.
"""

import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gemjax.kernels import metric as km
from gemjax.kernels import moments as kmo
from gemjax.kernels import search as ks

N, D, K = 400_000, 384, 10
prepare = jax.jit(ks.prepare_queries)
add_rows = jax.jit(kmo.add_rows)


def rows(n: int, d: int = D, seed: int = 0) -> np.ndarray:
    """Unit rows with a decaying spectrum and a common mean, as text embeddings have."""
    rng = np.random.default_rng(seed)
    out = rng.standard_normal((n, d), dtype=np.float32)
    out *= (np.arange(1, d + 1, dtype=np.float32) ** -0.35)[None]
    out += 0.1 * rng.standard_normal(d, dtype=np.float32)
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    return out


class Problem:
    """N memories on the device, their metric, and queries near them."""

    def __init__(self, n: int = N, dtype: str = "float32") -> None:
        self.host = rows(n)
        self.queries = rows(64, seed=1)
        capacity = 1 << (n - 1).bit_length()
        buffer = np.zeros((capacity, D), np.float32)
        buffer[:n] = self.host
        self.vectors = jax.device_put(jnp.asarray(buffer, dtype))
        self.eligible = jnp.arange(capacity) < n
        self.count = jnp.int32(n)
        self.moments = jax.jit(kmo.moments_from_rows)(self.vectors, self.eligible)
        self.metric = km.fit_metric_jit(self.moments)

    def fused(self, q: int) -> ks.TopK:
        """Everything a search does from unit query vectors to the ten best: transform, one pass, fusion, top-k."""
        prepared = prepare(self.metric, self.queries[:q])
        return jax.block_until_ready(
            ks.fused_search(self.vectors, self.eligible, self.count, prepared, jnp.float32(0.5), k=16)
        )


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


def note(benchmark, **more):
    benchmark.extra_info.update(jax=jax.__version__, device=jax.devices()[0].device_kind, **more)


@pytest.mark.parametrize("q", [1, 64])
def test_fused_search(benchmark, problem, q):
    assert np.asarray(problem.fused(q).valid).all()  # correct and compiled before it is timed
    benchmark(lambda: problem.fused(q))
    note(benchmark, n=N, d=D, q=q)


@pytest.mark.parametrize("q", [1, 64])
def test_faiss_plain_cosine(benchmark, problem, q):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatIP(D)
    index.add(problem.host)
    benchmark(lambda: index.search(problem.queries[:q], K))
    note(benchmark, n=N, d=D, q=q, faiss=faiss.__version__, threads=faiss.omp_get_max_threads())


@pytest.mark.parametrize("n", [1_000, 100_000, 1_000_000])
def test_refit_after_one_memory(benchmark, n):
    """From n memories' moments: add one row, fit again."""
    d = D if n <= 100_000 else 384
    state = jax.jit(kmo.moments_from_rows)(rows(n, d))
    one = rows(1, seed=2)
    jax.block_until_ready(km.fit_metric_jit(add_rows(state, one)))
    benchmark(lambda: jax.block_until_ready(km.fit_metric_jit(add_rows(state, one))))
    note(benchmark, n=n, d=d)


def paired(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Medians in milliseconds and the median of the paired ratios; the two alternate, so that load hits both."""
    ours()
    theirs()
    pairs = []
    for _ in range(repeats):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        theirs()
        pairs.append((middle - start, time.perf_counter() - middle))
    return (
        1e3 * statistics.median(a for a, _ in pairs),
        1e3 * statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


def main() -> None:
    """Print the comparisons that the documentation quotes."""
    import faiss
    from scipy.spatial.distance import cdist
    from sklearn.covariance import EmpiricalCovariance

    problem = Problem()
    index = faiss.IndexFlatIP(D)
    index.add(problem.host)
    size = problem.host.nbytes
    jax.block_until_ready(jnp.sum(problem.vectors))
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        jax.block_until_ready(jnp.sum(problem.vectors))
        best = min(best, time.perf_counter() - start)
    bandwidth = problem.vectors.nbytes / best
    print(f"faiss {faiss.__version__} ({faiss.get_compile_options().strip()}), {faiss.omp_get_max_threads()} threads")
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}; read bandwidth {bandwidth / 1e9:.1f} GB/s")
    for q, repeats in ((1, 15), (64, 5)):
        a, b, ratio = paired(lambda q=q: problem.fused(q), lambda q=q: index.search(problem.queries[:q], K), repeats)
        line = f"N={N} d={D} q={q}: fused {a:.1f} ms, FAISS cosine {b:.1f} ms, ratio {ratio:.2f}"
        if q == 1:
            line += f"; {100 * size / (a / 1e3) / bandwidth:.0f} % of the read bandwidth"
        print(line, flush=True)

    n = 20_000
    part, query = problem.host[:n].astype(np.float64), problem.queries[:1].astype(np.float64)
    precision = np.linalg.inv(np.asarray(km.dense_covariance(problem.metric), np.float64))
    vectors, eligible = jnp.asarray(problem.host[:n]), jnp.ones(n, bool)
    norms = jax.jit(ks.memory_norms)(problem.metric, vectors, jnp.int32(n))

    def ours() -> object:
        prepared = prepare(problem.metric, problem.queries[:1])
        return jax.block_until_ready(
            ks.fused_search(vectors, eligible, jnp.int32(n), prepared, jnp.float32(0.0), norms, k=16, form="distance")
        )

    a, b, ratio = paired(ours, lambda: cdist(query, part, "mahalanobis", VI=precision), 5)
    print(f"N={n} d={D}: distance search {a:.2f} ms, SciPy cdist {b:.1f} ms, {1 / ratio:.0f} times", flush=True)
    oracle = EmpiricalCovariance(store_precision=True)
    oracle.location_, oracle.precision_ = query[0], precision
    a, b, ratio = paired(ours, lambda: oracle.mahalanobis(part), 5)
    print(f"N={n} d={D}: distance search {a:.2f} ms, scikit-learn mahalanobis {b:.1f} ms, {1 / ratio:.0f} times")

    one = problem.queries[:1]
    times = {}
    for n in (1_000, 100_000, 400_000):
        state = jax.jit(kmo.moments_from_rows)(problem.host[:n])
        a, _, _ = paired(lambda s=state: jax.block_until_ready(km.fit_metric_jit(add_rows(s, one))), lambda: None, 9)
        times[n] = a
    print("refit after one memory: " + ", ".join(f"N={n} {t:.1f} ms" for n, t in times.items()), flush=True)
    centred = problem.host[:100_000] - problem.host[:100_000].mean(0)
    start = time.perf_counter()
    np.linalg.svd(centred, full_matrices=False)
    svd = time.perf_counter() - start
    print(f"SVD of 100,000 x {D}: {svd:.1f} s, {1e3 * svd / times[100_000]:.0f} times one refit")


if __name__ == "__main__":
    sys.exit(main())
