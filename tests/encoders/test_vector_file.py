"""Vectors on disk: found again by another process, bounded, and never wrong after damage, crashes or full disks."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.encoders.vector_file import VectorFile
from gemjax.errors import ConfigError
from tests.conftest import HashingEncoder


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def vector(number: int) -> np.ndarray:
    return np.array([number, 1, -number], np.float32)


def put(file: VectorFile, *numbers: int) -> None:
    file.put({key(n): vector(n) for n in numbers})


def numbers_in(file: VectorFile, top: int = 100) -> list[int]:
    """Which numbers it still has; each of them must be whole."""
    found = file.get([key(n) for n in range(top)])
    for n in range(top):
        if key(n) in found:
            np.testing.assert_array_equal(found[key(n)], vector(n))
    return [n for n in range(top) if key(n) in found]


def test_a_later_process_finds_what_was_put(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, "enc/oder: 1", 50)
    put(file, 1, 2)
    put(file, 3)
    assert numbers_in(file) == [1, 2, 3]
    assert numbers_in(VectorFile(tmp_path, "enc/oder: 1", 50)) == [1, 2, 3]
    assert numbers_in(VectorFile(tmp_path, "another", 50)) == []
    assert file.path.name.startswith("enc_oder_1-")


def test_the_file_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, "e", 10)
    for n in range(60):
        put(file, n)
        assert 3 * 4 + 20 <= file.path.stat().st_size <= 200 + 10 * (16 + 12 + 4)
        assert n in numbers_in(file)
    assert len(numbers_in(VectorFile(tmp_path, "e", 10))) >= 5
    put(file, *range(60, 85))  # more than fit
    assert numbers_in(file) == list(range(75, 85))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damage_loses_records_but_never_returns_a_wrong_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("v")
    file = VectorFile(folder, "e", 50)
    put(file, *range(8))
    raw = bytearray(file.path.read_bytes())
    kind = data.draw(st.sampled_from(["cut", "flip", "extend"]))
    if kind == "cut":
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    elif kind == "flip":
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        raw += data.draw(st.binary(min_size=1, max_size=90))
    file.path.write_bytes(bytes(raw))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = VectorFile(folder, "e", 50)
        survivors = numbers_in(again)
        assert set(survivors) <= set(range(8))
        if kind == "extend":
            assert survivors == list(range(8))
        put(again, *range(20, 25))  # it goes on, in step, whatever was there
        assert set(numbers_in(again)) == {*survivors, *range(20, 25)}
        assert set(range(20, 25)) <= set(numbers_in(VectorFile(folder, "e", 50)))


def test_damage_is_said_once(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, "e", 50)
    put(file, 1, 2)
    raw = bytearray(file.path.read_bytes())
    raw[-10] ^= 1
    file.path.write_bytes(bytes(raw))
    again = VectorFile(tmp_path, "e", 50)
    with pytest.warns(UserWarning, match="record 1 is damaged"):
        assert numbers_in(again) == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers_in(again) == [1]
    file.path.write_bytes(b"something else entirely")
    with pytest.warns(UserWarning, match="is damaged and will be made again") as caught:
        again = VectorFile(tmp_path, "e", 50)
        put(again, 7)
    assert len(caught) == 1 and numbers_in(again) == [7]


def test_another_dim_under_the_same_name_starts_over(tmp_path: Path) -> None:
    put(VectorFile(tmp_path, "e", 50), 1)
    file = VectorFile(tmp_path, "e", 50)
    file.put({key(9): np.ones(5, np.float32)})
    found = VectorFile(tmp_path, "e", 50).get([key(1), key(9)])
    assert list(found) == [key(9)] and len(found[key(9)]) == 5


def test_two_open_files_append_side_by_side(tmp_path: Path) -> None:
    one, two = VectorFile(tmp_path, "e", 12), VectorFile(tmp_path, "e", 12)
    for n in range(0, 40, 2):  # past the bound, so that each replaces the file under the other
        put(one, n)
        put(two, n + 1)
        assert n in numbers_in(one) and n + 1 in numbers_in(two)
    assert {38, 39} <= set(numbers_in(VectorFile(tmp_path, "e", 12)))


def test_a_deleted_file_is_made_again(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, "e", 50)
    put(file, 1)
    file.path.unlink()
    put(file, 2)
    assert numbers_in(VectorFile(tmp_path, "e", 50)) == [2]


def test_a_writer_that_is_killed_leaves_whole_records(tmp_path: Path) -> None:
    code = (
        "import sys, itertools, numpy as np\n"
        "from gemjax.encoders.vector_file import VectorFile\n"
        "file = VectorFile(sys.argv[1], 'e', 40)\n"
        "for n in itertools.count():\n"
        "    n %= 100\n"
        "    file.put({n.to_bytes(16, 'big'): np.array([n, 1, -n], np.float32)})\n"
        "    print(n, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(150):  # far enough to be killed while appending or rewriting
        writer.stdout.readline()
    writer.kill()
    writer.wait()
    writer.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = VectorFile(tmp_path, "e", 40)
        assert len(numbers_in(file)) >= 10
        put(file, 99)
    assert 99 in numbers_in(file)


def test_a_disk_that_cannot_be_written_is_given_up_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = VectorFile(tmp_path, "e", 50)
    put(file, 1)

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "_append", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        put(file, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put(file, 3)
    assert numbers_in(file) == [1]


def test_no_temporary_file_is_left_when_a_rewrite_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = VectorFile(tmp_path, "e", 4)
    put(file, 1, 2, 3)

    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        put(file, 4, 5)
    assert not list(tmp_path.glob("*.tmp")) and numbers_in(file) == [1, 2, 3]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made"):
        VectorFile(tmp_path / "file" / "folder", "e", 4)


def test_the_cache_uses_the_disk_across_instances(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(20)]
    first = CachedEncoder(HashingEncoder(), disk=tmp_path / "cache")
    want = first.encode(texts)
    inner = HashingEncoder()
    second = CachedEncoder(inner, max_entries=5, disk=tmp_path / "cache")
    np.testing.assert_array_equal(second.encode(texts[:5]), want[:5])
    assert inner.calls == 0 and second.usage.hits == 5 and second.dim == 64
    second.encode([*texts[5:], "new"])
    assert inner.texts == 1
    named = CallableEncoder(lambda texts: np.ones((len(texts), 2)), name="mine")
    CachedEncoder(named, disk=tmp_path / "cache").encode(["a"])
    assert len(list((tmp_path / "cache").glob("*.vectors"))) == 2
