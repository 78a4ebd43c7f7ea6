"""One result cut down: JSON as JSON, everything else by passages. A pure function of the result and its call."""

from functools import partial

from gemjax.history.arrival.members import cut_json
from gemjax.history.arrival.passages import MOST, cut_down, telling
from gemjax.history.records import ToolCall

_QUERY = 4_000


def shortened(text: str, call: ToolCall, limit: int, keep: int) -> str:
    """A result in about `keep` characters; the very text if it has at most `limit`, or cannot be made shorter.

    Args:
        text: the result.
        call: what was asked for; passages that hold its words come first.
        limit, keep: characters, see `ArrivalConfig`.

    Returns: whole lines, or JSON where it was JSON, in their own order; a mark stands for each gap.

    >>> rows = '[' + ', '.join(f'{{"id": {i}, "name": "row {i}"}}' for i in range(300)) + ']'
    >>> shortened(rows, ToolCall("c", "query", '{"name": "row 150"}'), 3000, 300).count("row 150")
    1
    """
    if len(text) <= limit:
        return text
    query = f"{call.name} {call.arguments[:_QUERY]}"
    short = None
    if len(text) <= MOST:
        short = cut_json(text, keep, partial(telling, query=query), lambda value, room: cut_down(value, query, room))
    short = cut_down(text, query, keep) if short is None else short
    return short if len(short) < len(text) else text
