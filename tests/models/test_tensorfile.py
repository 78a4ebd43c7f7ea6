"""The safetensors reader against the safetensors library, and damaged files."""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from gemjax.errors import WeightsError
from gemjax.models.tensorfile import TensorFile, open_tensors

RNG = np.random.default_rng(0)
TENSORS = {
    "a": RNG.standard_normal((3, 4)).astype(np.float32),
    "half": RNG.standard_normal((5,)).astype(np.float16),
    "empty": np.zeros((0, 3), np.float32),
    "scalar": np.array(2.5, np.float64),
    "ids": np.arange(6).reshape(1, 6),
    "flag": np.array([True, False]),
}


def test_reads_what_the_library_wrote(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "x.safetensors", metadata={"format": "pt"})
    read = TensorFile(tmp_path / "x.safetensors")
    assert set(read) == set(TENSORS) and len(read) == len(TENSORS)
    for name, value in TENSORS.items():
        assert read[name].dtype == value.dtype and read[name].shape == value.shape
        np.testing.assert_array_equal(read[name], value)
    with pytest.raises(ValueError, match="read-only"):
        read["a"][0, 0] = 1


def test_bfloat16_is_read(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3.0e38], np.float32)
    # The library's NumPy door has no bfloat16: its bytes are the upper half of float32's.
    upper = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + upper)
    read = TensorFile(tmp_path / "x.safetensors")["w"]
    assert read.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(read.astype(np.float32), values, rtol=2.0**-7)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damage_is_refused_or_leaves_readable_tensors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(save({"a": TENSORS["a"], "half": TENSORS["half"]}))
    kind = data.draw(st.sampled_from(["cut", "flip", "header"]))
    if kind == "cut":
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        top = 8 if kind == "header" else len(whole)
        whole[data.draw(st.integers(0, top - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("damaged") / "x.safetensors"
    path.write_bytes(bytes(whole))
    try:
        read = TensorFile(path)
    except WeightsError as error:
        assert str(path) in str(error)
    else:
        assert kind != "cut"
        assert all(np.asarray(value).nbytes >= 0 for value in read.values())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], "no JSON object"),
        ({"w": {"dtype": "F32", "shape": [2]}}, "malformed"),
        ({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "malformed"),
        ({"w": {"dtype": "F32", "shape": "no", "data_offsets": [0, 8]}}, "malformed"),
        ({"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, "F8_E4M3"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "does not fit"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "does not fit"),
    ],
)
def test_each_contradiction_is_named(tmp_path: Path, header: object, message: str) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(WeightsError, match=re.escape(message)):
        TensorFile(tmp_path / "x.safetensors")


def test_shards_are_put_together(tmp_path: Path) -> None:
    save_file({"a": TENSORS["a"]}, tmp_path / "model-1.safetensors")
    save_file({"half": TENSORS["half"]}, tmp_path / "model-2.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "half": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    read = open_tensors(tmp_path)
    assert set(read) == {"a", "half"}
    np.testing.assert_array_equal(read["half"], TENSORS["half"])
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"lacks .*model-2"):
        open_tensors(tmp_path)


def test_no_weights_and_pickled_weights_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"holds no model\.safetensors"):
        open_tensors(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(WeightsError, match="pickled"):
        open_tensors(tmp_path)
