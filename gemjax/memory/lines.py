"""A bank as lines of JSON: to look at, to version, and to take elsewhere."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gemjax.durable import remove_left_overs, replacing
from gemjax.errors import MemoryBankError, StateError
from gemjax.memory.record import TIMES, Memory, moment, own_metadata, scope_of, versions

FIELDS = ("id", "text", "metadata", "scope", "session", "history", "vector", *TIMES)


class Line(NamedTuple):
    """One line: a memory (its id None where the line has none) and its vector, if it has one."""

    memory: Memory
    vector: Float[np.ndarray, "d"] | None


def write_lines(
    path: str | os.PathLike[str], memories: Sequence[Memory], vectors: Float[np.ndarray, "n d"] | None
) -> int:
    """Write memories, with their vectors if given; returns how many.

    Raises: StateError when the file cannot be written; what was there is unchanged.
    """
    target = Path(path)
    try:
        remove_left_overs(target.parent)
        with replacing(target) as file:
            for i, memory in enumerate(memories):
                line = memory.to_dict()
                if vectors is not None:
                    # Nine digits give a float32 back bit by bit.
                    line["vector"] = [float(f"{x:.9g}") for x in vectors[i].tolist()]
                text = json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
                file.write(text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise StateError(f"cannot write {target}: {error}; what was there is unchanged") from error
    return len(memories)


def read_lines(path: str | os.PathLike[str]) -> list[Line]:
    """The lines of a file; blank ones are passed over.

    Raises: MemoryBankError naming the line and what is wrong with it.
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8", "surrogatepass")
    except (OSError, UnicodeError) as error:
        raise MemoryBankError(f"{name} cannot be read: {error}") from error
    return [_line(line, f"{name}, line {number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(text: str, where: str) -> Line:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MemoryBankError(f"{where}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise MemoryBankError(f"{where}: expected an object, got {type(value).__name__}")
    if unknown := sorted(value.keys() - set(FIELDS)):
        raise MemoryBankError(f"{where}: unknown fields {unknown}; put what is yours under `metadata`")
    said, id, session = value.get("text"), value.get("id"), value.get("session")
    if not isinstance(said, str) or not said.strip():
        raise MemoryBankError(f"{where}: `text` must be a non-empty string")
    if id is not None and (isinstance(id, bool) or not isinstance(id, str | int)):
        raise MemoryBankError(f"{where}: `id` must be a string or an integer")
    if session is not None and not (isinstance(session, str) and session):
        raise MemoryBankError(f"{where}: `session` must be a non-empty string")
    try:
        own, scope = own_metadata(value.get("metadata"), "metadata"), scope_of(value.get("scope", ()))
        times: dict[str, Any] = {name: moment(value.get(name), name) for name in TIMES}
        past = versions(value.get("history", []))
    except MemoryBankError as error:
        raise MemoryBankError(f"{where}: {error}") from None
    memory = Memory(id, said, own, scope, session, **times, history=past)  # type: ignore[arg-type]
    return Line(memory, _vector(value.get("vector"), where))


def _vector(value: Any, where: str) -> Float[np.ndarray, "d"] | None:
    if value is None:
        return None
    try:
        vector = np.asarray(value, np.float32)
    except (TypeError, ValueError, OverflowError):
        vector = np.zeros(0, np.float32)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all() or not vector.any():
        raise MemoryBankError(f"{where}: `vector` must be a list of finite numbers, not all zero")
    return vector
