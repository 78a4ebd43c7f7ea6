"""From paths to trajectories: walks folders, tells a recording's format by its content, reports what it cannot read."""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gemjax.errors import RequestError
from gemjax.evaluation.replay.readers import READERS, Recording, RecordingReader
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted

SUFFIXES = (".traj.json", ".jsonl", ".ndjson", ".json", ".traj")
_LINE_SUFFIXES = (".jsonl", ".ndjson")


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What `load` found: the trajectories, in path order, and the files left out, each with the reason."""

    trajectories: list[Trajectory]
    skipped: list[tuple[str, str]]


def load(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Loaded:
    """Read files, and folders with everything in them.

    A file that cannot be read is listed in `skipped`, never raised. Hidden files and folders are passed over. Ids that
    several files share are told apart by their folder.

    Raises: `RequestError` if a path does not exist.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Trajectory] = []
    skipped: list[tuple[str, str]] = []
    for path in dict.fromkeys(file for one in given for file in _files(Path(one))):
        try:
            found += read(path)
        except RequestError as error:
            skipped.append((str(path), str(error)))
    return Loaded(_unique(found), skipped)


def read(path: str | os.PathLike[str]) -> list[Trajectory]:
    """The trajectories of one file, in the order in which they stand in it.

    Raises: `RequestError` with one line saying why, for a file that is no recording this package reads.
    """
    recording = _record(Path(path))
    for reader in READERS:
        if reader.matches(recording):
            found = _read_by(reader, recording)
            if not found:
                raise RequestError(f"a {reader.NAME} recording without any message")
            if recording.broken:
                note = f"{counted(recording.broken, 'line')} that are not JSON left out"
                found = [dataclasses.replace(t, notes=(*t.notes, note)) for t in found]
            return [_as_sent(t) for t in found]
    names = ", ".join(dict.fromkeys(r.NAME for r in READERS))
    raise RequestError(f"not a recording of an agent that is known here; supported: {names}")


def _as_sent(t: Trajectory) -> Trajectory:
    """The conversation without turns that were cut off inside it: their calls have no result, or not all of them.

    Recordings keep such turns, and every provider refuses a history with one, so the agent went on without them. What
    else is wrong stays: it is the recording's, and the replay counts it.
    """
    if not t.parsed.problems:
        return t
    exchanges, _ = t.wire.exchanges([r.view for r in t.parsed.records])
    cut = [e for e in exchanges if not e.complete and e.stop < len(t.messages)]
    gone = {m for e in cut for m in e.members}
    rest = dataclasses.replace(
        t,
        messages=[m for i, m in enumerate(t.messages) if i not in gone],
        times=tuple([time for i, time in enumerate(t.times) if i not in gone]),
        notes=(*t.notes, f"{counted(len(cut), 'turn')} without all results left out, as no provider accepts them"),
    )
    better = cut and len(rest.parsed.problems) < len(t.parsed.problems)
    return rest if better and len(rest.parsed.blocks) == len(t.parsed.blocks) else t


def _read_by(reader: RecordingReader, recording: Recording) -> list[Trajectory]:
    try:
        return reader.read(recording)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        # A file that begins like a recording and is damaged further down. One file must not end a replay of many.
        raise RequestError(f"damaged {reader.NAME} recording ({type(error).__name__}: {error})") from error


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise RequestError(f"no such file or folder: {path}")
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (p for name in sorted(names) if not name.startswith(".") and (p := Path(folder, name)).is_file())


def _record(path: Path) -> Recording:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RequestError(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RequestError("not UTF-8 text") from None
    name = path.name
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    if not text.strip():
        raise RequestError("the file is empty")
    if not path.name.endswith(_LINE_SUFFIXES):
        try:
            return Recording(name, str(path), json.loads(text), lines=False)
        except (ValueError, RecursionError) as error:
            reason = f"not JSON ({error})"
    else:
        reason = "no line is a JSON object"
    rows, broken = _lines(text)
    # Half of the lines: a text file in which a line or two happens to be JSON is no JSONL file.
    if not rows or broken > len(rows):
        raise RequestError(reason)
    return Recording(name, str(path), rows, lines=True, broken=broken)


def _lines(text: str) -> tuple[list[Any], int]:
    rows, broken = [], 0
    # Not splitlines(): U+2028 and its like stand unescaped inside JSON strings.
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            broken += 1
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            broken += 1
    return rows, broken


def _unique(found: list[Trajectory]) -> list[Trajectory]:
    shared = {name for name, count in Counter(t.id for t in found).items() if count > 1}
    named = [dataclasses.replace(t, id=f"{Path(t.source).parent.name}/{t.id}") if t.id in shared else t for t in found]
    taken: Counter[str] = Counter()
    result = []
    for t in named:
        taken[t.id] += 1
        result.append(t if taken[t.id] == 1 else dataclasses.replace(t, id=f"{t.id} ({taken[t.id]})"))
    return result
