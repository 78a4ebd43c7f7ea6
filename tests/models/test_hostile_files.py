"""Model files made to hang, to fill memory or to reach outside their folder: one `WeightsError`, in bounded work."""

import base64
import json
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from gemjax.errors import WeightsError
from gemjax.models.gguf import GGUFFile
from gemjax.models.gguf_header import check_header
from gemjax.models.gguf_tokenizer import tokenizer_from_gguf
from gemjax.models.language_files import find_language_model
from gemjax.models.opening import inside, read_json_file
from gemjax.models.sentence import read_sentence_config
from gemjax.models.tensorfile import TensorFile, open_tensors
from gemjax.models.tokenizer import load_tokenizer
from tests.models.ggufs import random_model, tensors, write

gguf = pytest.importorskip("gguf")


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(fields: list[bytes], tensor_list: list[bytes] = (), counts: tuple[int, int] | None = None) -> bytes:
    tensor_count, field_count = counts or (len(tensor_list), len(fields))
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, field_count) + b"".join([*fields, *tensor_list])


def array(name: str, kind: int, length: int, data: bytes = b"") -> bytes:
    return text(name) + struct.pack("<IIQ", 9, kind, length) + data


def tensor(name: str, *axes: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack("<I", len(axes)) + struct.pack(f"<{len(axes)}QIQ", *axes, kind, offset)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
GGUF_LIES = {
    "an array of 2^62 bytes": (header([array("a", 0, 1 << 62)]), "declares an array"),
    "an array of 2^62 strings": (header([array("a", 8, 1 << 62)]), "declares an array"),
    "a million bytes that are not there": (header([array("a", 0, 1_000_000)]), "the file has 0 left"),
    "strings that are not there": (header([array("a", 8, 1000)]), "ends with the file"),
    "arrays of arrays": (header([array("a", 9, 1, struct.pack("<IQ", 9, 1))]), "array of type 9"),
    "an unknown type": (header([text("a") + struct.pack("<I", 77)]), "unknown type 77"),
    "2^60 fields": (header([], counts=(0, 1 << 60)), "field count"),
    "2^60 tensors": (header([], counts=(1 << 60, 0)), "tensor count"),
    "a name of 2^50 bytes": (header([struct.pack("<Q", 1 << 50)]), "declares 1,125,899,906,842,624 bytes"),
    "a name that is no UTF-8": (header([struct.pack("<Q", 2) + b"\xff\xfe" + bytes(5)]), "UTF-8"),
    "a tensor of a million axes": (header([], [text("t") + struct.pack("<I", 1_000_000)]), "1000000 axes"),
    "a tensor of 2^60 elements": (header([], [tensor("t", 1 << 30, 1 << 30)]), "declares 1,152,921,504,606,846,976"),
    "a tensor beyond the file": (header([], [tensor("t", 1, offset=1 << 40)]), "at 1,099,511,627,776"),
    "an old version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "another file": (b"PK\3\4" + bytes(40), "not a GGUF file"),
}


@pytest.mark.parametrize("lie", GGUF_LIES)
def test_what_a_gguf_file_declares_is_checked_against_its_size(tmp_path: Path, lie: str) -> None:
    data, message = GGUF_LIES[lie]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match=message) as caught:
            GGUFFile(path)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)


def test_more_layers_than_tensors_are_refused_before_room_is_made(tmp_path: Path) -> None:
    model = random_model("Llama")
    path = write(tmp_path / "m.gguf", model, skip=("block_count",), extra=lambda w: w.add_block_count(2**32 - 1))
    with pytest.raises(WeightsError, match="block_count = 4294967295"):
        GGUFFile(path)


@pytest.mark.parametrize(
    "change",
    [
        {"merges": [1, 2]},
        {"tokens": [["a"]]},
        {"tokens": 7},
        {"add_bos_token": True, "bos_token_id": "1"},
        {"token_type": 3},
        {"merges": "ab"},
        {"pre": ["smollm"]},
    ],
    ids=str,
)
def test_a_gguf_tokenizer_of_wrong_types(change: dict) -> None:
    fields = {"model": "gpt2", "pre": "smollm", "tokens": ["a", "b", "ab"], "merges": ["a b"], "token_type": [1, 1, 1]}
    with pytest.raises(WeightsError, match=r"x\.gguf"):
        tokenizer_from_gguf({**fields, **change}, "x.gguf")


def split(folder: Path) -> tuple[object, list[Path]]:
    """A model in two parts, as converters split it: the metadata stands in the first, the tensors in both."""
    model = random_model("Llama")
    values = tensors(model)
    later = {name: value for name, value in values.items() if name.startswith("blk.1.")}
    names = [folder / f"tiny-0000{i}-of-00002.gguf" for i in (1, 2)]

    def numbered(number: int):
        def extra(writer) -> None:
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", 2)
            writer.add_int32("split.tensors.count", len(values))

        return extra

    def only_first(written: dict) -> None:
        for name in later:
            del written[name]

    write(names[0], model, change=only_first, extra=numbered(0))
    writer = gguf.GGUFWriter(names[1], "llama")
    numbered(1)(writer)
    for name, value in later.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, names


def test_a_split_model_loads_from_its_first_part_and_from_its_folder(tmp_path: Path) -> None:
    model, names = split(tmp_path)
    found = GGUFFile(names[0])
    expected = model.model.layers[1].mlp.up_proj.weight.numpy()
    np.testing.assert_array_equal(found["layers.1.mlp.up_proj.weight"], expected)
    assert find_language_model(tmp_path)[1] == names[0]
    with pytest.raises(WeightsError, match="part 2 of a model split into 2 files; name its first part, tiny-00001"):
        GGUFFile(names[1])
    renamed = names[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(WeightsError, match="part 1 of a model split into 2 files"):
        GGUFFile(renamed)
    renamed.rename(names[0])
    names[1].unlink()
    with pytest.raises(WeightsError, match=r"parts \['tiny-00002-of-00002.gguf'\] are missing"):
        GGUFFile(names[0])


SAFETENSORS_LIES = {
    "nested deeply": "[" * 50_000,
    "a list as dtype": json.dumps({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}),
    "a million axes": json.dumps({"a": {"dtype": "F32", "shape": [2] * 10**6, "data_offsets": [0, 4]}}),
    "an axis of 5,000 digits": '{"a": {"dtype": "F32", "shape": [1' + "0" * 5000 + '], "data_offsets": [0, 4]}}',
    "a string as offsets": json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": "04"}}),
    "no UTF-8": b"\xff\xfe{}",
}


@pytest.mark.parametrize("lie", SAFETENSORS_LIES)
def test_what_a_safetensors_header_declares(tmp_path: Path, lie: str) -> None:
    data = SAFETENSORS_LIES[lie]
    data = data if isinstance(data, bytes) else data.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(data).to_bytes(8, "little") + data + bytes(8))
    with pytest.raises(WeightsError, match=str(path)):
        TensorFile(path)


def test_a_header_of_a_million_tensors_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((60 << 20).to_bytes(8, "little"))
        file.truncate(64 << 20)
    with pytest.raises(WeightsError, match="header 62914560"):
        TensorFile(path)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x", "..\\x", "C:x", 7, "a\0b"])
def test_names_that_lead_out_of_the_folder(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "x.safetensors")
    index = {"weight_map": {"a": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"index\.json"):
        open_tensors(folder)
    modules = [{"type": "x.Transformer", "path": name}, {"type": "x.Pooling", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(WeightsError, match=r"modules\.json"):
        read_sentence_config(folder)


def test_names_inside_the_folder_are_followed(tmp_path: Path) -> None:
    assert inside(tmp_path, "1_Pooling/config.json", tmp_path) == tmp_path / "1_Pooling" / "config.json"
    assert inside(tmp_path, "", tmp_path) == tmp_path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs: that nothing waits on one is untested")
def test_nothing_waits_on_a_fifo(tmp_path: Path) -> None:
    for name, read in {
        "model.safetensors": TensorFile,
        "m.gguf": check_header,
        "tokenizer.json": read_json_file,
    }.items():
        os.mkfifo(tmp_path / name)
        with pytest.raises(WeightsError, match="no regular file"):
            read(tmp_path / name)


def tokenizer_json(**parts: object) -> str:
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", "added_tokens": [], **empty, "model": model, **parts})


@pytest.mark.parametrize(
    "charsmap", [None, "", base64.b64encode(bytes([8, 0, 0, 0]) + b"abcdefgh").decode()], ids=["none", "empty", "wild"]
)
def test_a_tokenizer_that_makes_the_native_library_panic(tmp_path: Path, charsmap: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap}))
    with pytest.raises(WeightsError, match=r"tokenizer\.json"):
        load_tokenizer(path)


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(WeightsError, match=r"config\.json is damaged"):
        read_json_file(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("gguf") / "m.gguf", random_model("Llama", num_hidden_layers=1)).read_bytes()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_gguf_files_load_or_are_refused(small: bytes, data: st.DataObject, tmp_path_factory) -> None:
    wild = bytearray(small)
    head = min(len(wild), 12_000)  # metadata and tensor list
    for _ in range(data.draw(st.integers(1, 4))):
        wild[data.draw(st.integers(4, head - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("wild") / "m.gguf"
    path.write_bytes(wild[: data.draw(st.sampled_from([len(wild), head, len(wild) // 2]))])
    try:
        file = GGUFFile(path)
        for name in file:
            file[name]
        tokenizer_from_gguf(file.tokenizer_fields(), "m")
    except WeightsError:
        pass
