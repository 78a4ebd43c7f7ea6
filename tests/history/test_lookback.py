"""What a rewrite makes a provider read anew although it stays, beside a provider that looks back twenty blocks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.blocks import Reader
from gemjax.history.lookback import out_of_reach
from tests.provider import cache
from tests.serve.agents import history

MESSAGES = json.dumps(history("anthropic", 40).messages)
LAST = 80
MARK = {"cache_control": {"type": "ephemeral"}}


def request(calls, marked=(), system=None, automatic=False):
    made = {"model": "m", "max_tokens": 9, "messages": json.loads(MESSAGES)[: 1 + 2 * calls]}
    for i in marked:
        content = made["messages"][i]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        made["messages"][i]["content"] = [*parts[:-1], {**parts[-1], **MARK}]
    return made | ({"system": system} if system else {}) | (MARK if automatic else {})


def beyond(made, dropped):
    parsed = Reader().parse(made)
    assert not parsed.problems
    return out_of_reach(made, parsed, dropped, parsed.blocks[min(dropped)].messages[0]), parsed


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 39), st.integers(0, 6), st.booleans())
def test_what_the_provider_reads_anew(first, more, system_marked):
    """The provider bills the requests before and the rewritten one: what it does not find again is the loss."""
    system = [{"type": "text", "text": "s" * 5000, **(MARK if system_marked else {})}]
    made = request(40, [LAST], system)
    dropped = frozenset(range(first, min(first + 1 + more, 39)) or [38])
    loss, parsed = beyond(made, dropped)
    known = cache.PrefixCache(lambda: 0.0)
    for stop in range(1, len(made["messages"]) + 1, 2):
        shorter = request(40, [stop - 1], system)
        known.charge([None, system], shorter["messages"][:stop], True)
    gone = {m for i in dropped for m in parsed.blocks[i].messages}
    after = [m for i, m in enumerate(made["messages"]) if i not in gone]
    read = known.charge([None, system], after, True)["read"]
    start = parsed.blocks[min(dropped)].messages[0]
    # The cached prefix ends before the first change: all of it is found, or what the marks leave of it.
    whole = len(str(system)) + sum(r.chars for r in parsed.records[:start])
    assert loss == 0 or loss > 0.5 * (whole - read)
    assert (read > 0.8 * whole) == (loss < 0.2 * whole)


def test_a_mark_near_the_change_finds_all():
    assert beyond(request(40, [LAST]), {35})[0] == 0
    assert beyond(request(40, [LAST]), {10})[0] > 10_000
    # An earlier mark of the caller's covers what stands before it.
    parsed = Reader().parse(request(40, [LAST]))
    end = parsed.blocks[9].messages[-1]
    assert beyond(request(40, [end, LAST]), {10})[0] == 0


@pytest.mark.parametrize(("fields", "marked"), [({}, False), ({"automatic": True}, True)])
def test_marks_that_nobody_set(fields, marked):
    """Without marks nothing is cached (or everything is found); the automatic mark is one at the end."""
    assert (beyond(request(40, **fields), {10})[0] > 0) is marked


def test_a_marked_prompt_is_read():
    prompt = [{"type": "text", "text": "s" * 5000}]
    without, _ = beyond(request(40, [LAST], prompt), {10})
    with_mark, _ = beyond(request(40, [LAST], [{**prompt[0], **MARK}]), {10})
    assert 5000 < without - with_mark < 5400
