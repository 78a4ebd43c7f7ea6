"""Signals of one block: what it wrote, touched and read, and whether it failed. The door is `signals`.

Everything here is pure and lexical: arguments are parsed (JSON, shell, Python, patches), nothing is run or looked up.
"""

import dataclasses
import re

from gemjax.history.deadline import OutOfTime
from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals.effects import Effects
from gemjax.history.signals.errors import error_in
from gemjax.history.signals.outputs import announced_files
from gemjax.history.signals.tools import effects_of
from gemjax.history.signals.work import RequestWork, Work, WorkSpent

__all__ = ["BlockSignals", "RequestWork", "signals"]

MAX_CALLS = 256
"""Most calls of one block that are looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class BlockSignals:
    """What the rules need to know of a block.

    Attributes:
        writes: artifacts that the block probably changed: normalised paths, or keys such as `git repository` and
            `reservation_id=4WQ150` for what is no file. A failed call of an editing tool or an API is no write.
        touches: everything it names: what it writes, reads, lists or passes on. URLs are not among them.
        mutates: whether it probably changed anything; the same as `bool(writes)`.
        error: one short line that says what failed, or None.
        sources: what it read: file paths, `host/path` of pages, `search: words`. A failed or empty read is none.
        unknown: reading it would have cost more work than a block or a request may cost; all else is then empty.
    """

    writes: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    mutates: bool = False
    error: str | None = None
    sources: tuple[str, ...] = ()
    unknown: bool = False


def signals(content: BlockContent, request: RequestWork | None = None) -> BlockSignals:
    """The signals of one block. Pure and deterministic; raises nothing but what the clock of `request` raises.

    Args:
        content: the block.
        request: what the blocks of one request may cost together; pays for this one. None for a block by itself.

    Returns: its signals, or `unknown` ones when reading it takes more work than it may cost (`work.py`): time is then
        bounded by the block's length, whatever its text.

    >>> from gemjax.history.records import BlockContent, ToolCall, ToolResult
    >>> call = ToolCall("1", "bash", '{"command": "cd src && sed -i s/a/b/ app.py && pytest -q"}')
    >>> block = BlockContent("", "", (call,), (ToolResult("1", "1 failed, 3 passed in 0.12s"),))
    >>> found = signals(block)
    >>> found.writes, found.error
    (('src/app.py',), '1 failed tests')
    """
    chars = sum(len(call.name) + len(call.arguments) for call in content.calls)
    chars += sum(len(result.text) for result in content.results)
    work = Work(chars, request)
    try:
        return _read(content, work)
    except WorkSpent:
        return BlockSignals(unknown=True)
    finally:
        if request is not None:
            request.left -= work.spent


def _read(content: BlockContent, work: Work) -> BlockSignals:
    writes: dict[str, None] = {}
    touches: dict[str, None] = {}
    sources: dict[str, None] = {}
    error: str | None = None
    for call, result in _paired(content):
        try:
            effects = effects_of(call, result.text[:500] if result else "", work)
        except (WorkSpent, OutOfTime):
            raise
        except Exception:  # an agent is waiting: a defect in the analysis of one call must not cost it the request
            effects = Effects(work)
        failure = None
        if result is not None:
            if effects.announces:
                for name in announced_files(result.text, work):
                    effects.write(name, effects.cwd)
            failure = error_in(
                result.text, quotes=effects.quotes, no_match=effects.no_match, is_error=result.is_error, work=work
            )
        if failure:
            for undone in list(effects.writes) if effects.single else effects.tentative:
                effects.writes.pop(undone, None)
            for unread in effects.tentative:
                effects.sources.pop(unread, None)
        writes |= effects.writes
        touches |= effects.touches
        if result is None or not (effects.quotes and (failure or _is_empty(result.text))):
            sources |= effects.sources
        error = error or failure
    return BlockSignals(tuple(writes), tuple(touches), bool(writes), error, tuple(sources))


def _paired(content: BlockContent) -> list[tuple[ToolCall, ToolResult | None]]:
    """Each call with its own result: by id where ids are unique in the block, else by position."""
    calls, results = content.calls[:MAX_CALLS], content.results[:MAX_CALLS]
    by_id = {result.id: result for result in results}
    if len(by_id) == len(results) and all(call.id in by_id for call in calls[: len(results)]):
        return [(call, by_id.get(call.id)) for call in calls]
    return [(call, results[i] if i < len(results) else None) for i, call in enumerate(calls)]


_NOTHING = re.compile(r"\bno (?:content|output|results?|match(?:es)?|files|data|hits)\b", re.I)
_SAYS_LITTLE = 200
_LETTER = re.compile(r"\w")


def _is_empty(text: str) -> bool:
    """Nothing was shown: no word at all, or a short message that says so."""
    start = text[: 4 * _SAYS_LITTLE].strip().removeprefix("OBSERVATION:")
    if start.startswith("<returncode>1</returncode>\n<output>\n</output>") or start == "null":
        return True
    if _LETTER.search(start) is None:
        return len(text) < 4 * _SAYS_LITTLE
    return len(start) <= _SAYS_LITTLE and _NOTHING.search(start) is not None
