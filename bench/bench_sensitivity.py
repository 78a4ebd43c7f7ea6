"""Sensitivity of SmolLM2-135M against torch autograd (sdpa), paired in one process.

    python -m pytest bench/bench_sensitivity.py --benchmark-enable -s     the ratios
    python bench/bench_sensitivity.py                                     all that follows

The second prints, for each length, the medians of interleaved runs and their ratio, the compile time, GFLOP/s beside
this machine's own float32 matrix product, and each side's peak memory from a fresh process. `--json FILE` writes it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gemjax.errors import WeightsError

LENGTHS = (256, 512, 1024, 2048)


def flops(config, n: int) -> float:
    """Multiply-adds x 2 of forward and backward (no weight gradients): projections, causal attention, head."""
    c = config
    heads = c.num_attention_heads + 2 * c.num_key_value_heads
    layer = c.hidden_size * c.head_dim * (heads + c.num_attention_heads) + 3 * c.hidden_size * c.intermediate_size
    dense = 2 * n * (c.num_hidden_layers * layer + c.vocab_size * c.hidden_size)
    # Forward q k and w v over half the square; backward makes the scores again and has four more products.
    square = c.num_hidden_layers * c.num_attention_heads * c.head_dim * n * n
    return 2 * dense + (2 + 5) * square


def matmul_peak(seconds: float = 2.0) -> float:
    """GFLOP/s of a 2048 x 2048 float32 product in JAX."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        product(a).block_until_ready()
        best = max(best, 2 * 2048**3 / (time.perf_counter() - start) / 1e9)
    return best


def jax_side(n: int):
    """A compiled sensitivity of `n` tokens as a function of ids, its compile seconds, and the model."""
    from gemjax.models.language import _sensitivities, default_language_model

    model = default_language_model()
    ones = np.ones((1, n), np.float32)
    ids = np.zeros((1, n), np.int32)
    start = time.perf_counter()
    program = _sensitivities.lower(model.params, ids, ones, ones > 0, config=model.config).compile()
    seconds = time.perf_counter() - start

    def run(ids: np.ndarray) -> np.ndarray:
        return np.asarray(program(model.params, ids[None], ones, ones > 0).scores[0])

    return run, seconds, model


def torch_side(threads: int):
    """The same by torch autograd, from the same dequantised tensors."""
    import torch
    import transformers

    from gemjax.models.gguf import GGUFFile
    from gemjax.models.language_files import find_language_model
    from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL

    torch.set_num_threads(threads)
    path = find_language_model(DEFAULT_LANGUAGE_MODEL)[1]
    assert path is not None
    file = GGUFFile(path)
    c = file.config
    config = transformers.LlamaConfig(
        **{
            name: getattr(c, name)
            for name in [
                "vocab_size",
                "hidden_size",
                "intermediate_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "head_dim",
                "max_position_embeddings",
                "rms_norm_eps",
                "tie_word_embeddings",
            ]
        },
        rope_parameters={"rope_theta": c.rope_theta, "rope_type": "default"},
        attn_implementation="sdpa",
    )
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    missing = model.load_state_dict(
        {f"model.{k}": torch.from_numpy(np.array(v)) for k, v in file.items()}, strict=False
    )
    assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys
    model.tie_weights()

    def run(ids: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(ids)[None].long()
        h = model.model.embed_tokens(given).detach().requires_grad_()
        logits = model(inputs_embeds=h, use_cache=False).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, given[0, 1:], reduction="sum")
        (gradient,) = torch.autograd.grad(loss, h)
        return (gradient * h)[0].norm(dim=-1).detach().numpy()

    return run


def high_water_mb() -> float:
    """Peak resident MB of this process image. (`ru_maxrss` survives `exec`: a child would report its parent's.)"""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def peak(side: str, n: int) -> float:
    """Peak resident MB of one run in a fresh process."""
    out = subprocess.run(
        [sys.executable, __file__, "--peak", side, "--lengths", str(n)], capture_output=True, text=True, check=True
    )
    return float(out.stdout.split()[-1])


@pytest.fixture(scope="module")
def reference():
    pytest.importorskip("transformers", reason="the rival is transformers' model under torch autograd")
    return torch_side(2)


@pytest.mark.parametrize("n", [256, 1024])
def test_sensitivity_beside_torch(benchmark, reference, n):
    """Ratio of the paired times, ours / torch's: below 1 we are faster."""
    try:
        run, compiling, _ = jax_side(n)
    except WeightsError as error:
        pytest.skip(str(error))
    ids = np.random.default_rng(0).integers(20, 40000, n).astype(np.int32)
    mine, theirs = run(ids), reference(ids)
    assert float(np.abs(mine - theirs).max() / theirs.max()) < 1e-3
    ratios = []

    def once():
        times = []
        for side in (run, reference):
            start = time.perf_counter()
            side(ids)
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])

    benchmark.pedantic(once, rounds=5, warmup_rounds=1)
    benchmark.extra_info.update(ratio=statistics.median(ratios[1:]), tokens=n, compile_seconds=compiling)
    print(f"\n{n} tokens: {statistics.median(ratios[1:]):.2f} x torch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=lambda text: [int(x) for x in text.split(",")], default=LENGTHS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="torch's threads; give JAX as many cores")
    parser.add_argument("--peak", choices=("jax", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    if arguments.peak:
        (n,) = arguments.lengths
        run = jax_side(n)[0] if arguments.peak == "jax" else torch_side(arguments.threads)
        run(rng.integers(20, 40000, n).astype(np.int32))
        print(high_water_mb())
        return
    reference = torch_side(arguments.threads)
    ceiling = matmul_peak()
    rows = []
    for n in arguments.lengths:
        run, compiling, model = jax_side(n)
        ids = rng.integers(20, 40000, n).astype(np.int32)
        mine, theirs = run(ids), reference(ids)
        error = float(np.abs(mine - theirs).max() / theirs.max())
        assert error < 1e-3, error
        times: dict[str, list[float]] = {"jax": [], "torch": []}
        for _ in range(arguments.repeats):
            for name, side in (("jax", run), ("torch", reference)):
                start = time.perf_counter()
                side(ids)
                times[name].append(time.perf_counter() - start)
        ours, other = (statistics.median(times[name]) for name in ("jax", "torch"))
        row = {
            "tokens": n,
            "jax_seconds": ours,
            "torch_seconds": other,
            "ratio": statistics.median(a / b for a, b in zip(times["jax"], times["torch"], strict=True)),
            "compile_seconds": compiling,
            "gflops": flops(model.config, n) / ours / 1e9,
            "matmul_gflops": ceiling,
            "error": error,
        }
        if not arguments.no_memory:
            row |= {f"{side}_peak_mb": peak(side, n) for side in ("jax", "torch")}
        rows.append(row)
        print("  ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)
    if arguments.json:
        from gemjax.commands.files import write_atomically

        write_atomically(arguments.json, json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
