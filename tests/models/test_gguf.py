"""GGUF files written here: every family's logits, every block format, and what is refused."""

import struct

import numpy as np
import pytest
import torch

from gemjax.encoders import LastTokenEncoder, load_encoder
from gemjax.errors import WeightsError
from gemjax.models.checkpoint import load_decoder
from gemjax.models.gguf import GGUFFile
from gemjax.models.gguf_tokenizer import tokenizer_from_gguf
from gemjax.models.language import LanguageModel
from gemjax.models.language_files import load_model
from gemjax.models.weights import ModelFiles
from tests.models.ggufs import SIZES, random_model, write

gguf = pytest.importorskip("gguf")
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that 40 positions meet all three ranges of wavelengths.
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "Llama": ("Llama", {}),
    "Llama-3.2": ("Llama", {"head_dim": 16, "rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "Qwen2": ("Qwen2", {}),
    "Qwen3": ("Qwen3", {"head_dim": 12, "tie_word_embeddings": True}),
}
IDS = np.arange(3, 43, dtype=np.int32)


def frequency_factors(model):
    """What converters write as `rope_freqs.weight`: plain frequencies over the scaled ones that transformers makes."""
    scaled = model.model.rotary_emb.inv_freq.double().numpy()
    d = 2 * len(scaled)
    plain = model.config.rope_parameters["rope_theta"] ** (-np.arange(0, d, 2) / d)
    return (plain / scaled).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    return random_model("Llama")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_written_file_gives_the_models_surprisals(tmp_path, name):
    family, changes = FAMILIES[name]
    model = random_model(family, **changes)

    def change(tensors):
        if name == "Llama-3.2":
            tensors["rope_freqs.weight"] = frequency_factors(model)
            assert tensors["rope_freqs.weight"].max() == pytest.approx(32, rel=1e-5)
            assert tensors["rope_freqs.weight"].min() == pytest.approx(1, rel=1e-5)

    ours = LanguageModel.from_pretrained(write(tmp_path / "model.gguf", model, change=change))
    with torch.no_grad():
        logits = model(torch.from_numpy(IDS)[None].long()).logits[0]
    expected = -torch.log_softmax(logits[:-1], -1)[torch.arange(39), torch.from_numpy(IDS[1:]).long()].numpy()
    np.testing.assert_allclose(ours.surprisals([IDS])[0][1:], expected, rtol=1e-4, atol=1e-4)
    assert ours.tokenize("ab").ids.tolist() == [257]


def half(data, at):
    return struct.unpack_from("<e", data, at)[0]


def low_and_high(data, at, count):
    """Two numbers of 4 bits a byte: first all low halves, then all high ones."""
    return [b & 15 for b in data[at : at + count]] + [b >> 4 for b in data[at : at + count]]


def bits(data, at, count):
    number = int.from_bytes(data[at : at + count], "little")
    return [number >> i & 1 for i in range(8 * count)]


def q4_0(b):
    return [half(b, 0) * (q - 8) for q in low_and_high(b, 2, 16)]


def q4_1(b):
    return [half(b, 0) * q + half(b, 2) for q in low_and_high(b, 4, 16)]


def q5_0(b):
    return [half(b, 0) * (q + 16 * h - 16) for q, h in zip(low_and_high(b, 6, 16), bits(b, 2, 4), strict=True)]


def q5_1(b):
    high = bits(b, 4, 4)
    return [half(b, 0) * (q + 16 * h) + half(b, 2) for q, h in zip(low_and_high(b, 8, 16), high, strict=True)]


def q8_0(b):
    return [half(b, 0) * q for q in struct.unpack_from("<32b", b, 2)]


def two_bits(data, at):
    """64 bytes to 256 numbers: each 32 bytes hold 128 of them, the first 32 in the lowest two bits."""
    return [data[at + 32 * n + i] >> 2 * j & 3 for n in range(2) for j in range(4) for i in range(32)]


def q2_k(b):
    d, low = half(b, 80), half(b, 82)
    return [d * (b[i // 16] & 15) * q - low * (b[i // 16] >> 4) for i, q in enumerate(two_bits(b, 16))]


def q3_k(b):
    scales = []
    for i in range(16):
        four = b[96 + i % 8] >> (4 if i >= 8 else 0) & 15
        scales.append((four | (b[104 + i % 4] >> 2 * (i // 4) & 3) << 4) - 32)
    out = []
    for i, q in enumerate(two_bits(b, 32)):
        set_ = b[i % 32] >> (i // 32) & 1
        out.append(half(b, 108) * scales[i // 16] * (q - (0 if set_ else 4)))
    return out


def six_bit_pairs(s):
    """12 bytes to 8 scales and 8 minima."""
    scales = [s[j] & 63 for j in range(4)] + [s[j + 8] & 15 | (s[j] >> 6) << 4 for j in range(4)]
    minima = [s[j + 4] & 63 for j in range(4)] + [s[j + 8] >> 4 | (s[j + 4] >> 6) << 4 for j in range(4)]
    return scales, minima


def q4_k(b, fifth=None, at=16):
    scales, minima = six_bit_pairs(b[4:16])
    numbers = [q for n in range(4) for q in low_and_high(b, at + 32 * n, 32)]
    if fifth:
        numbers = [q + 16 * (fifth[i % 32] >> (i // 32) & 1) for i, q in enumerate(numbers)]
    return [half(b, 0) * scales[i // 32] * q - half(b, 2) * minima[i // 32] for i, q in enumerate(numbers)]


def q5_k(b):
    return q4_k(b, b[16:48], 48)


def q6_k(b):
    scales = struct.unpack_from("<16b", b, 192)
    out = []
    for i in range(256):
        n, j, lane = i // 128, i % 128 // 32, i % 32
        four = b[64 * n + 32 * (j % 2) + lane] >> (4 if j >= 2 else 0) & 15
        two = b[128 + 32 * n + lane] >> 2 * j & 3
        out.append(half(b, 208) * scales[i // 16] * ((four | two << 4) - 32))
    return out


# Bytes of a block, where its half-precision numbers stand, and what it means.
BLOCKS = {
    "F32": (4, (), lambda b: struct.unpack("<f", b)),
    "F16": (2, (0,), lambda b: struct.unpack("<e", b)),
    "BF16": (2, (), lambda b: struct.unpack("<f", bytes(2) + b)),
    "Q4_0": (18, (0,), q4_0),
    "Q4_1": (20, (0, 2), q4_1),
    "Q5_0": (22, (0,), q5_0),
    "Q5_1": (24, (0, 2), q5_1),
    "Q8_0": (34, (0,), q8_0),
    "Q2_K": (84, (80, 82), q2_k),
    "Q3_K": (110, (108,), q3_k),
    "Q4_K": (144, (0, 2), q4_k),
    "Q5_K": (176, (0, 2), q5_k),
    "Q6_K": (210, (208,), q6_k),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_block_formats_mean_what_their_layout_says(tmp_path, model, kind):
    """Random bytes, so that every bit of a block counts, read through a file and in plain Python."""
    size, halves, read = BLOCKS[kind]
    rng = np.random.default_rng(0)
    values = 1 if size <= 4 else 256 if kind.endswith("_K") else 32
    rows = rng.integers(0, 256, (3, 512 // values, size), np.uint8)
    for at in halves:
        rows[..., at : at + 2] = rng.standard_normal((*rows.shape[:2], 1)).astype("<f2").view(np.uint8)
    if kind in ("F32", "BF16"):
        rows = rng.standard_normal((3, 512)).astype("<f4").view(np.uint8).reshape(3, 512, 4)[..., 4 - size :].copy()
    expected = np.array([[x for block in row for x in read(block.tobytes())] for row in rows], np.float64)
    dtype = getattr(gguf.GGMLQuantizationType, kind)
    raw = np.ascontiguousarray(rows).reshape(3, -1)
    raw = raw.view({"F32": "<f4", "F16": "<f2"}.get(kind, np.uint8))
    file = GGUFFile(write(tmp_path / "a.gguf", model, raw={"blk.7.ffn_up.weight": (raw, dtype)}))
    got = file["layers.7.mlp.up_proj.weight"]
    assert got.dtype == np.float32
    assert got.shape == (3, 512)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_tensors_are_near_the_exact_ones(tmp_path, model, kind):
    file = GGUFFile(write(tmp_path / "a.gguf", model, kind=getattr(gguf.GGMLQuantizationType, kind)))
    load_decoder(file.config, file)
    exact = model.model.layers[1].self_attn.q_proj.weight.numpy()
    error = np.abs(file["layers.1.self_attn.q_proj.weight"] - exact).max() / np.abs(exact).max()
    # Half a step of the format: 4 bits span the block's range in 15 steps, 8 bits in 254.
    assert error < {"F16": 1e-3, "BF16": 5e-3, "Q8_0": 5e-3}.get(kind, 0.2)


def test_a_quantisation_without_a_reader_is_named(tmp_path, model):
    kind = gguf.GGMLQuantizationType.Q8_1
    raw = {"blk.1.ffn_up.weight": (np.zeros((64, 40), np.uint8), kind)}
    path = write(tmp_path / "a.gguf", model, raw=raw, change=lambda tensors: tensors.pop("blk.1.ffn_up.weight"))
    with pytest.raises(WeightsError, match=r"a\.gguf: tensor layers\.1\.mlp\.up_proj\.weight is stored as Q8_1"):
        LanguageModel.from_pretrained(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("blk.1.ffn_up.weight"), "lack the parameter layers.1.mlp.up_proj.weight"),
        (lambda t: t.pop("token_embd.weight"), "lacks the tensor token_embd.weight"),
        (lambda t: t.update({"blk.0.ffn_gate_inp.weight": np.zeros((2, 2), np.float32)}), "unknown tensors.*gate_inp"),
        (lambda t: t.update({"blk.0.attn_q.bias": np.zeros(32, np.float32)}), "unknown tensors.*q_proj.bias"),
        (lambda t: t.update({"blk.0.ffn_up.weight": t["blk.0.ffn_up.weight"][1:]}), r"shape \[63, 32\].*\[64, 32\]"),
        (lambda t: t.update({"blk.0.attn_q.weight": t["blk.0.attn_q.weight"][1:]}), "31 rows does not hold 4 heads"),
        (lambda t: t.update({"token_embd.weight": np.zeros(32, np.float32)}), r"token_embd.weight has shape \[32\]"),
        (lambda t: t.update({"rope_freqs.weight": np.ones(5, np.float32)}), "5 rotary divisors for head_dim 8"),
        (lambda t: t.update({"rope_freqs.weight": np.zeros(4, np.float32)}), "rotary divisors .* positive"),
        (lambda t: t.update({"output_norm.weight": np.full(32, np.nan, np.float32)}), "not finite"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, model, change, message):
    with pytest.raises(WeightsError, match=message):
        LanguageModel.from_pretrained(write(tmp_path / "a.gguf", model, change=change))


@pytest.mark.parametrize(
    ("extra", "skip", "message"),
    [
        (lambda w: w.add_float32("llama.logit_scale", 2.0), (), "unknown keys.*logit_scale"),
        (lambda w: w.add_string("llama.rope.scaling.type", "yarn"), (), "rope.scaling.type"),
        (lambda w: w.add_uint32("llama.rope.dimension_count", 4), (), "head sizes .* differ"),
        (lambda w: None, ("context_length",), r"lacks the keys \['context_length'\]"),
        (
            lambda w: w.add_array("llama.attention.head_count", [4, 2]),
            ("attention.head_count",),
            r"attention.head_count = \[4, 2\]; expected a positive int",
        ),
    ],
)
def test_metadata_that_would_change_the_result_is_refused(tmp_path, model, extra, skip, message):
    with pytest.raises(WeightsError, match=message):
        GGUFFile(write(tmp_path / "a.gguf", model, extra=extra, skip=skip))


def test_keys_without_effect_are_read_over(tmp_path, model):
    def extra(writer):
        writer.add_string("llama.rope.scaling.type", "none")
        writer.add_float32("llama.rope.scaling.factor", 1.0)
        writer.add_uint32("llama.rope.dimension_count", 8)

    assert GGUFFile(write(tmp_path / "a.gguf", model, extra=extra)).config.rope_divisors is None


def test_another_architecture_or_tokenizer_is_named(tmp_path, model):
    fields = GGUFFile(write(tmp_path / "b.gguf", model)).tokenizer_fields()
    for change, message in (
        ({"model": "llama"}, r"tokenizer\.json"),
        ({"pre": "unheard-of"}, "pre-tokenizer"),
        ({"tokens": []}, "damaged"),
        ({"merges": ["zz yy"]}, "damaged"),
        ({"add_eos_token": True, "eos_token_id": 258}, "eos_token_id = 258 is not in the vocabulary of 258"),
        ({"add_bos_token": True}, "bos_token_id = None"),
    ):
        with pytest.raises(WeightsError, match=message):
            tokenizer_from_gguf({**fields, **change}, "file")
    ends = {"add_bos_token": True, "bos_token_id": 257, "add_eos_token": True, "eos_token_id": 256}
    made = tokenizer_from_gguf({**fields, **ends}, "file")
    assert made.encode("b").ids[::2] == [257, 256]
    assert len(made.encode("b", add_special_tokens=False).ids) == 1
    other = tmp_path / "gpt2.gguf"
    writer = gguf.GGUFWriter(other, "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="architecture 'gpt2'"):
        GGUFFile(other)


def test_a_file_cut_off_anywhere_is_refused(tmp_path, model):
    data = write(tmp_path / "whole.gguf", model).read_bytes()
    cut = tmp_path / "cut.gguf"
    sizes = [*range(0, 200, 7), *np.linspace(200, len(data) - 1, 25).astype(int)]
    for size in sizes:
        cut.write_bytes(data[:size])
        with pytest.raises(WeightsError, match=r"cut\.gguf"):
            file = GGUFFile(cut)
            dict(file)
    cut.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(WeightsError, match="damaged"):
        GGUFFile(cut)


def test_a_wrong_digest_is_refused_before_anything_is_read(tmp_path, model):
    path = write(tmp_path / "model.gguf", model)
    for gguf_file in (path, None):
        files = ModelFiles("org/tiny", tmp_path, "package tiny", "0" * 64)
        (tmp_path / "model.safetensors").write_bytes(b"other weights")
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(WeightsError, match=r"damaged or not .*org/tiny: sha256 .*expected 000.*reinstall"):
            load_model(files, gguf_file)


def test_which_file_of_a_folder_is_meant(tmp_path, model):
    write(tmp_path / "a.gguf", model)
    assert LanguageModel.from_pretrained(tmp_path).name == tmp_path.name
    write(tmp_path / "b.gguf", model)
    with pytest.raises(WeightsError, match=r"several GGUF files; name one: \['a\.gguf', 'b\.gguf'\]"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="is no file"):
        LanguageModel.from_pretrained(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(WeightsError, match="is not a GGUF file"):
        LanguageModel.from_pretrained(tmp_path / "text.gguf")


def test_a_file_is_an_encoder_too_and_appends_its_end_token(tmp_path):
    model = random_model("Qwen3", head_dim=12)

    def written(pooling):
        def extra(writer):
            writer.add_pooling_type(pooling)
            writer.add_eos_token_id(256)
            writer.add_add_eos_token(True)

        return write(tmp_path / f"{pooling.name}.gguf", model, extra=extra)

    encoder = load_encoder(written(gguf.PoolingType.LAST))
    assert isinstance(encoder, LastTokenEncoder)
    ids = [*encoder._tokenizer.ids(["ab c"])[0], 256]
    with torch.no_grad():
        expected = model.model(torch.tensor([ids])).last_hidden_state[0, -1].numpy()
    np.testing.assert_allclose(encoder.encode(["ab c"])[0], expected / np.linalg.norm(expected), atol=1e-5)
    assert encoder.window == SIZES["max_position_embeddings"]
    with pytest.raises(WeightsError, match="pooling 'mean' is not supported, only lasttoken"):
        load_encoder(written(gguf.PoolingType.MEAN))
    # Without an end token an empty text has no token at all, and no direction.
    bare = load_encoder(write(tmp_path / "bare.gguf", model))
    vectors = bare.encode(["", "ab c"])
    assert not vectors[0].any()
    assert np.linalg.norm(vectors[1]) == pytest.approx(1)
