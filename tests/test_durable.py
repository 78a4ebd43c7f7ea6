"""Files that are whole or not there, and nothing of anybody else's is ever removed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.durable import is_left_over, locked, remove_left_overs, replacing

SCRATCH = ".gemjax-" + "0123456789abcdef" * 2 + ".tmp"
# What a user may have beside it: names that look alike and are not the ones that `replacing` gives.
FOREIGN = [
    ".gemjax-notes.tmp", "gemjax-" + "0" * 32 + ".tmp", ".gemjax-" + "0" * 31 + ".tmp", ".gemjax-" + "0" * 33 + ".tmp",
    ".gemjax-" + "0" * 32 + ".tmp.bak", ".gemjax-" + "A" * 32 + ".tmp", "x.gemjax-" + "0" * 32 + ".tmp", "data.tmp",
]  # fmt: skip


def aged(path: Path, seconds: float = 3600.0) -> Path:
    path.write_bytes(b"half")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


@settings(max_examples=30)
@given(parts=st.lists(st.binary(max_size=50), max_size=4), fails=st.booleans(), old=st.none() | st.binary(max_size=20))
def test_a_reader_sees_the_old_file_or_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], fails: bool, old: bytes | None
) -> None:
    target = tmp_path_factory.mktemp("d") / "file"
    if old is not None:
        target.write_bytes(old)
    try:
        with replacing(target) as file:
            for part in parts:
                file.write(part)
                file.flush()
                assert (target.read_bytes() if target.exists() else None) == old
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert (target.read_bytes() if target.exists() else None) == (old if fails else b"".join(parts))
    assert {p.name for p in target.parent.iterdir()} <= {"file"}


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_permissions_are_the_ones_that_are_asked_for(tmp_path: Path) -> None:
    with replacing(tmp_path / "secret", mode=0o600) as file:
        assert [p.stat().st_mode & 0o777 for p in tmp_path.iterdir()] == [0o600]
        file.write(b"x")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_only_what_a_dead_writer_left_goes(tmp_path: Path) -> None:
    for name in FOREIGN:
        assert not is_left_over(name)
        aged(tmp_path / name)
    dead = aged(tmp_path / SCRATCH)
    young = tmp_path / SCRATCH.replace("0", "1")
    young.write_bytes(b"half")
    with replacing(tmp_path / "file") as file:
        file.write(b"new")
        living = next(p for p in tmp_path.iterdir() if is_left_over(p.name) and p not in (dead, young))
        os.utime(living, (time.time() - 3600,) * 2)  # a slow writer
        remove_left_overs(tmp_path)
        assert not dead.exists() and young.exists() and living.exists()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert {p.name for p in tmp_path.iterdir()} == {*FOREIGN, young.name, "file"}


def test_a_killed_writer_s_file_goes_with_the_next_clean_up(tmp_path: Path) -> None:
    code = (
        "import os, sys; from gemjax.durable import replacing\n"
        "with replacing(sys.argv[1]) as f: f.write(b'x'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    (left,) = tmp_path.iterdir()
    assert is_left_over(left.name)
    os.utime(left, (time.time() - 3600,) * 2)
    remove_left_overs(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_left_overs(tmp_path / "none")


def test_one_process_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    counter = tmp_path / "n"
    counter.write_text("0")
    code = (
        "import sys, time; from pathlib import Path; from gemjax.durable import locked\n"
        "n = Path(sys.argv[1])\n"
        "for _ in range(30):\n"
        "    with locked(n.with_suffix('.lock')):\n"
        "        value = int(n.read_text()); time.sleep(0.001); n.write_text(str(value + 1))\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", code, str(counter)]) for _ in range(2)]
    for _ in range(30):
        with locked(counter.with_suffix(".lock")):
            value = int(counter.read_text())
            time.sleep(0.001)
            counter.write_text(str(value + 1))
    assert [other.wait() for other in others] == [0, 0]
    assert counter.read_text() == "90"
