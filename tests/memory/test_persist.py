"""Saving is atomic, loading is strict."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from gemjax.errors import StateError
from gemjax.memory import MemoryBank, MemoryConfig, persist

ROOT = Path(__file__).resolve().parents[2]


def make_bank(count=40, dim=8, seed=0, **config):
    bank = MemoryBank(config=MemoryConfig(**config))
    vectors = np.random.default_rng(seed).standard_normal((count, dim))
    bank.add([f"text {i} é 漢" for i in range(count)], vectors=vectors, metadata=[{"i": i} for i in range(count)])
    return bank


def same(a, b):
    query = np.random.default_rng(9).standard_normal(a.dim)
    assert a.ids == b.ids and len(a) == len(b)
    np.testing.assert_array_equal(a.vectors(), b.vectors())
    assert [h.to_dict() for h in a.search(query)] == [h.to_dict() for h in b.search(query)]


@pytest.mark.parametrize("config", [{}, {"dtype": "bfloat16"}, {"form": "distance", "alpha": 0.25}], ids=str)
def test_round_trip(tmp_path, config):
    bank = make_bank(**config)
    bank.remove([3, 39])
    bank.save(tmp_path / "b")
    loaded = MemoryBank.load(tmp_path / "b")
    assert loaded.config == bank.config
    same(bank, loaded)
    # The last id was removed before the save, and is still not used again.
    assert loaded.add(["new"], vectors=np.ones((1, 8))) == [40]


def test_ids_keep_their_type_and_texts_every_character(tmp_path):
    bank = MemoryBank()
    texts = ["line\nbreak", "\ud800 lone surrogate", "nul \0", "a\u2028b"]
    bank.add(texts, ids=["1", 1, "é", -5], vectors=np.eye(4))
    bank.save(tmp_path / "b")
    loaded = MemoryBank.load(tmp_path / "b")
    assert loaded.ids == ["1", 1, "é", -5]
    assert [entry.text for entry in loaded._entries.live()] == texts


def test_empty_banks(tmp_path):
    MemoryBank().save(tmp_path / "new")
    assert len(MemoryBank.load(tmp_path / "new")) == 0
    bank = make_bank(3)
    bank.remove([0, 1, 2])
    bank.save(tmp_path / "emptied")
    loaded = MemoryBank.load(tmp_path / "emptied")
    assert len(loaded) == 0 and loaded.dim == 8 and loaded.search(np.ones(8)) == []


def test_a_kill_at_any_point_leaves_the_old_or_the_new_bank(tmp_path):
    pytest.importorskip("fcntl", reason="needs fork")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    program = Path(__file__).with_name("killed_saver.py")
    out = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "bank"), "60", "7"],
        env=env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr[-3000:]
    assert int(out.stdout) >= 30  # most kills fell inside a save


@pytest.mark.parametrize("step", ["_write_vectors", "_write_memories", "_describe", "_replace_header"])
def test_a_full_disk_leaves_the_old_bank(tmp_path, monkeypatch, step):
    old, new = make_bank(), make_bank(30, seed=1)
    old.save(tmp_path / "b")
    before = sorted(path.name for path in (tmp_path / "b").iterdir())
    real = getattr(persist, step)

    def full(*arguments):
        if step in ("_write_vectors", "_write_memories"):
            arguments[0].write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(persist, step, full)
    with pytest.raises(StateError, match=r"No space left on device.*unchanged"):
        new.save(tmp_path / "b")
    monkeypatch.setattr(persist, step, real)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == before
    same(MemoryBank.load(tmp_path / "b"), old)


def damage(folder, what):
    header = json.loads((folder / "header.json").read_text())
    vectors = folder / header["files"]["vectors"]["name"]
    memories = folder / header["files"]["memories"]["name"]
    if what == "truncated":
        vectors.write_bytes(vectors.read_bytes()[:-5])
    elif what == "bit flip":
        data = bytearray(vectors.read_bytes())
        data[-1] ^= 1
        vectors.write_bytes(data)
    elif what == "missing":
        memories.unlink()
    elif what == "header cut":
        (folder / "header.json").write_text((folder / "header.json").read_text()[:50])
    elif what == "not json":
        (folder / "header.json").write_bytes(b"\xff\xfe\0")
    elif what == "no header":
        (folder / "header.json").unlink()
    else:
        field, value = what
        header[field] = value
        header["digest"] = persist._digest_of({key: part for key, part in header.items() if key != "digest"})
        (folder / "header.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("truncated", "truncated or damaged"),
        ("bit flip", "sha256"),
        ("missing", "is missing; the bank is damaged"),
        ("header cut", "cannot be read"),
        ("not json", "cannot be read"),
        ("no header", "holds no memory bank"),
        (("version", 3), "bank version 3; this release reads versions 1 and 2"),
        (("format", "other"), "not the header of a memory bank"),
        (("count", 7), "the header says 7"),
        (("count", "7"), "'count' is missing or of a wrong type"),
        (("config", {"alpha": 3}), "saved settings cannot be read"),
        (("config", {"speed": 3}), "saved settings cannot be read"),
        (("files", {"vectors": {}}), "files.vectors is missing or incomplete"),
        (("files", {"vectors": {"name": "../x", "bytes": 1, "sha256": ""}}), "plain file name"),
        (("dim", 9), "vectors of shape"),
        (("dim", 10**12), "'dim' is out of range"),
        (("dim", 0), "'dim' is out of range"),
        (("count", True), "'count' is missing or of a wrong type"),
        (("dtype", "bfloat16"), "the vectors are 'bfloat16', the settings say 'float32'"),
        (("next_id", 3), "not below next_id"),
        (("config", {"alpha": [1]}), "saved settings cannot be read"),
        (("config", {"ridge": 10**400}), "saved settings cannot be read"),
        (("config", {"auto_refit": 1}), "saved settings cannot be read"),
        (("files", {"vectors": {"name": 3, "bytes": 1, "sha256": ""}}), "plain file name"),
    ],
    ids=str,
)
def test_damage_is_a_clear_error(tmp_path, what, message):
    make_bank().save(tmp_path / "b")
    damage(tmp_path / "b", what)
    with pytest.raises(StateError, match=message):
        MemoryBank.load(tmp_path / "b")


def test_places_that_are_no_bank(tmp_path):
    with pytest.raises(StateError, match="holds no memory bank"):
        MemoryBank.load(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match="cannot save"):
        make_bank(2).save(tmp_path / "file")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("x")
    with pytest.raises(StateError, match="holds other files"):
        make_bank(2).save(tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_another_encoder_is_refused(tmp_path, hashing_encoder):
    bank = MemoryBank(hashing_encoder)
    bank.add(["one two", "three"])
    bank.save(tmp_path / "b")
    assert MemoryBank.load(tmp_path / "b", hashing_encoder).search("three", k=1)[0].id == 1

    class Other(type(hashing_encoder)):
        name = "other"

    with pytest.raises(StateError, match="made by 'hashing-64', not by 'other'"):
        MemoryBank.load(tmp_path / "b", Other())


def test_two_processes_saving_at_once_leave_one_whole_bank(tmp_path):
    pytest.importorskip("fcntl", reason="needs fork")
    code = (
        "import sys, numpy as np\n"
        "from gemjax.memory import MemoryBank\n"
        "bank = MemoryBank()\n"
        "n = int(sys.argv[2])\n"
        "bank.add([f't{i}' for i in range(n)], vectors=np.random.default_rng(n).standard_normal((n, 8)))\n"
        "for _ in range(30): bank.save(sys.argv[1])\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "b"), str(n)], env=env, stderr=subprocess.PIPE)
        for n in (300, 500)
    ]
    for process in both:
        _, error = process.communicate(timeout=200)
        assert process.returncode == 0, error[-2000:]
    bank = MemoryBank.load(tmp_path / "b")
    assert len(bank) in (300, 500)
    expected = np.random.default_rng(len(bank)).standard_normal((len(bank), 8))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(bank.vectors(), expected, atol=1e-6)
    assert len(list((tmp_path / "b").iterdir())) == 4


def write_over(folder, key, content):
    """Another content for one data file, with a header that is right about it."""
    header = json.loads((folder / "header.json").read_text())
    about = header["files"][key]
    (folder / about["name"]).write_bytes(content)
    about["bytes"], about["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    del header["digest"]
    header["digest"] = persist._digest_of(header)
    (folder / "header.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    "lines",
    [
        b"5\n",
        b"[1]\n",
        b"[1, 2, 3, 4, 5]\n",
        b'[true, "t", null]\n',
        b'[1.5, "t", null]\n',
        b'[[1], "t", null]\n',
        b'[0, "", null]\n',
        b"[0, 7, null]\n",
        b'[0, "t", [1]]\n',
        b'[0, "t", {"x": NaN}]\n',
        b'[0, "t", null, {"y": 1}]\n',
        b'[0, "t", null, {"created_at": "soon"}]\n',
        b'[0, "t", null, {"scope": [1]}]\n',
        b"[" * 100_000 + b"\n",
        b'[0, "a", null]\n[0, "b", null]\n',
        b'[0, "\xff", null]\n',
        b"1" * 5000 + b"\n",
    ],
    ids=lambda value: value[:30].decode("latin-1"),
)
def test_crafted_memories_are_a_state_error(tmp_path, lines):
    make_bank(1).save(tmp_path / "b")
    write_over(tmp_path / "b", "memories", lines)
    with pytest.raises(StateError):
        MemoryBank.load(tmp_path / "b")


def tensors_of(bank, **changes):
    moments = bank.moments
    tensors = {"vectors": bank.vectors(), "moments.count": np.asarray(moments.count).reshape(1),
               "moments.mean": np.asarray(moments.mean), "moments.scatter": np.asarray(moments.scatter)}  # fmt: skip
    tensors |= changes
    return save({key: value for key, value in tensors.items() if value is not None})


@pytest.mark.parametrize(
    "changes",
    [
        {"vectors": np.full((3, 8), np.nan, np.float32)},
        {"vectors": np.zeros((3, 8), np.float32)},
        {"vectors": np.eye(3, 8)},
        {"vectors": np.eye(3, 8).astype(np.int32)},
        {"vectors": None},
        {"moments.mean": None},
        {"moments.scatter": np.full((8, 8), np.inf, np.float32)},
        {"moments.mean": np.zeros(7, np.float32)},
        {"moments.count": np.array([4], np.int32)},
    ],
    ids=lambda value: "-".join(value),
)
def test_crafted_vectors_are_a_state_error(tmp_path, changes):
    bank = make_bank(3)
    bank.save(tmp_path / "b")
    write_over(tmp_path / "b", "vectors", tensors_of(bank))
    same(MemoryBank.load(tmp_path / "b"), bank)  # the control: only the change is refused
    write_over(tmp_path / "b", "vectors", tensors_of(bank, **changes))
    with pytest.raises(StateError):
        MemoryBank.load(tmp_path / "b")
    write_over(tmp_path / "b", "vectors", b"\xff" * 64)
    with pytest.raises(StateError):
        MemoryBank.load(tmp_path / "b")


def test_every_bit_of_the_header_is_covered(tmp_path):
    bank = make_bank(9, alpha=0.5, ridge=10.0)
    bank.save(tmp_path / "b")
    path = tmp_path / "b" / "header.json"
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.choice(len(data) * 8, 400, replace=False):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << (at % 8)
        path.write_bytes(changed)
        try:
            loaded = persist.read_bank(tmp_path / "b").header
        except StateError:
            continue
        path.write_bytes(data)
        assert loaded == persist.read_bank(tmp_path / "b").header  # a flip in a blank: the same bank


FOREIGN = ("memories-2019.jsonl", "vectors-backup.npz", ".tmp_notes", "header.json.bak", ".tmpAb12Cd",
           "vectors-" + "0" * 32 + ".npz", "memories-" + "A" * 32 + ".jsonl")  # fmt: skip


def test_only_our_exact_names_are_ever_removed(tmp_path):
    beside, alone = tmp_path / "beside", tmp_path / "alone"
    make_bank(4).save(beside)
    alone.mkdir()
    for folder in (beside, alone):
        for name in FOREIGN:
            (folder / name).write_text("mine")
    left_over = [beside / f"vectors-{'0' * 32}.safetensors", beside / f"header.json.{'a' * 32}"]
    for path in left_over:
        path.write_text("killed")
    make_bank(5).save(beside)
    assert len(MemoryBank.load(beside)) == 5 and not any(path.exists() for path in left_over)
    assert all((beside / name).read_text() == "mine" for name in FOREIGN)
    with pytest.raises(StateError, match="holds other files"):
        make_bank(4).save(alone)
    assert sorted(os.listdir(alone)) == sorted(FOREIGN)


@pytest.mark.parametrize("content", [b'{"name": "my web page"}', b"[1]", b"not json"])
def test_another_programs_header_is_not_written_over(tmp_path, content):
    (tmp_path / "header.json").write_bytes(content)
    with pytest.raises(StateError, match="header"):
        make_bank(2).save(tmp_path)
    assert os.listdir(tmp_path) == ["header.json"] and (tmp_path / "header.json").read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("which", ["header", "vectors"])
def test_a_pipe_in_a_files_place_is_refused_at_once(tmp_path, which):
    make_bank(2).save(tmp_path / "b")
    name = persist._parsed_header(tmp_path / "b")["files"]["vectors"]["name"] if which == "vectors" else "header.json"
    (tmp_path / "b" / name).unlink()
    os.mkfifo(tmp_path / "b" / name)
    with pytest.raises(StateError):
        MemoryBank.load(tmp_path / "b")


def test_a_bank_of_version_1_loads():
    bank = MemoryBank.load(Path(__file__).with_name("bank_v1"))
    assert bank.ids == [0, "m1", 2, "m3", 4, "m5", 6, "m7", 8, "m9", "m11"]
    assert bank.config == MemoryConfig(alpha=0.25, ridge=2.0)
    vectors = np.delete(np.round(np.random.default_rng(0).standard_normal((12, 4)), 3), 10, axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(bank.vectors(), vectors, atol=1e-6)
    hit = bank.search(vectors[3], k=1)[0]
    assert (hit.id, hit.text, hit.metadata) == ("m3", "text 3 é 漢", None)
    assert bank.add(["new"], vectors=np.ones((1, 4))) == [11]


def test_a_bank_cut_under_an_open_reader_is_an_error_at_the_next_load(tmp_path):
    bank = make_bank(300)
    bank.save(tmp_path / "b")
    loaded = MemoryBank.load(tmp_path / "b")
    vectors = next((tmp_path / "b").glob("vectors-*"))
    os.truncate(vectors, 100)
    same(loaded, bank)  # read, not mapped
    with pytest.raises(StateError, match="truncated"):
        MemoryBank.load(tmp_path / "b")
