"""Grounding and the bill with look-ups, against a brute-force reading and by hand."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import ConfigError
from gemjax.evaluation.replay import EstimatedTokens, Prices, Refetch, Replay, Trajectory, methods_named, requests
from gemjax.evaluation.replay.grounding import CallNeeds, Need, NeedIndex, met
from gemjax.evaluation.replay.refetch import Lookups
from gemjax.history.values import COMMON, values_of


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _exchange(n: int, arguments: dict[str, Any], result: str) -> list[dict[str, Any]]:
    call = {"id": f"c{n}", "type": "function", "function": {"name": "tool", "arguments": json.dumps(arguments)}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": result},
    ]


def _trajectory(*exchanges: tuple[dict[str, Any], str], task: str = "do it") -> Trajectory:
    messages = [_user(task)]
    for n, (arguments, result) in enumerate(exchanges):
        messages += _exchange(n, arguments, result)
    return Trajectory("t", "chat", {}, messages, None, "made")


def _last_needs(t: Trajectory) -> CallNeeds:
    return NeedIndex(t).needs(list(requests(t))[-1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat src/app/main.py | head -5", {"src/app/main.py"}),
        ("see https://example.org/a?b=1.", {"https://example.org/a?b=1"}),
        ("order W1234567 for user_id sophia_silva_7557", {"W1234567", "user_id", "sophia_silva_7557"}),
        ("getUser returns 1024 items, 17 of them new", {"getUser", "1024"}),
        ("on 2024-05-15 at 3.25 percent", {"2024-05-15", "3.25"}),
        ("the quick brown fox jumps over it", set()),
        ("git commit --no-verify -m 'Fix the parser'", {"Fix the parser"}),
        ("commit 1a2b3c4d of ./gradlew", {"1a2b3c4d", "./gradlew"}),
        ("e.g. utf-8 in __init__ > /dev/null", set()),
        ("ls src/components/**/*.tsx", {"src/components"}),
        ("", set()),
    ],
)
def test_specific_values(text: str, expected: set[str]) -> None:
    assert values_of(text) == expected


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_values_stand_in_their_text_and_are_no_common_words(text: str) -> None:
    for value in values_of(text):
        assert value in text
        assert value not in COMMON
        assert len(value) >= 3


def test_needs_by_hand() -> None:
    t = _trajectory(
        ({"path": "src/app.py"}, "def load_user(): pass"),
        ({"command": "ls"}, "order W1234567"),
        ({"command": "ls"}, "order W1234567 again, and W7654321"),
        ({"order": "W1234567", "note": "load_user for given_name", "other": "never_seen_1"}, ""),
        task="given_name is known",
    )
    needs = {n.value: n for n in _last_needs(t).values}
    assert set(needs) == {"W1234567", "load_user"}, "what the user said stays, and what nothing held was not copied"
    assert needs["W1234567"].blocks == (1, 2) and needs["W1234567"].rare and needs["W1234567"].distance == 1
    assert needs["load_user"].blocks == (0,) and needs["load_user"].distance == 3
    messages = {0: {1, 2}, 1: {3, 4}, 2: {5, 6}}
    gone = met(CallNeeds(tuple(needs.values()), ()), lambda m: m not in messages[2])
    assert (gone.grounding, gone.fully, gone.missing) == (1.0, True, ())
    gone = met(CallNeeds(tuple(needs.values()), ()), lambda m: m not in messages[0])
    assert (gone.grounding, gone.fully, [n.value for n in gone.missing]) == (0.5, False, ["load_user"])
    assert gone.by_distance == ((1, 2), (0, 0), (0, 0), (0, 0))


def test_a_value_in_a_call_alone_is_visible_leniently_and_not_strictly() -> None:
    t = _trajectory(({"path": "a"}, "id is X1234"), ({"id": "X1234"}, "ok"), ({"id": "X1234"}, ""))
    needs = _last_needs(t)
    assert [n.blocks for n in needs.values] == [(0, 1)]
    without_result = met(needs, lambda m: m not in (1, 2))
    assert (without_result.grounding, without_result.strict) == (1.0, 0.0)


def test_edits_are_counted_apart() -> None:
    source = "1\tdef f(first_value):\n2\t    return first_value + 1\n"
    edit = {"file_path": "f.py", "old_string": "    return first_value + 1", "new_string": "    return second_thing"}
    t = _trajectory(({"path": "f.py"}, source), ({"command": "ls"}, "f.py"), (edit, "done"))
    needs = _last_needs(t)
    assert [n.value for n in needs.values] == ["f.py"]
    assert [[n.value for n in lines] for lines in needs.edits] == [["return first_value + 1"]]
    gone, there = met(needs, lambda m: m not in (1, 2)), met(needs, lambda m: m not in (3, 4))
    assert (gone.edits, [line.value for line in gone.unseen], gone.missing) == (0.0, ["return first_value + 1"], ())
    assert (there.edits, there.unseen) == (1.0, ())


def test_an_edit_of_lines_that_are_gone_has_to_look_them_up(hashing_encoder: Any) -> None:
    source = "def f(first_value):\n    return first_value + 1\n"
    edit = {"path": "f.py", "old_string": "    return first_value + 1", "new_string": "    return 2"}
    t = _trajectory(({"path": "f.py"}, source), *[({"path": "f.py", "n": n}, "f.py") for n in range(20)], (edit, "ok"))
    outcome = Replay(methods_named(["none", "keep-last-16"], Prices()), hashing_encoder, EstimatedTokens()).run(t)
    last = outcome.methods["keep-last-16"]
    assert outcome.methods["none"].refetches == 0
    assert last.met[-1].fully in (True, None) and last.refetches == 1 and last.refetch_cost > 0


def test_a_part_of_a_longer_word_is_no_value() -> None:
    t = _trajectory(({"q": 1}, "id 123456 and user_ids"), ({"q": 2}, "x"), ({"a": "2345", "b": "user_id"}, ""))
    assert _last_needs(t).values == ()


def test_text_that_a_method_puts_in_the_place_of_another_counts() -> None:
    t = _trajectory(({"q": 1}, "W1234567 and W7654321"), ({"q": 2}, "x"), ({"a": "W1234567", "b": "W7654321"}, ""))
    found = met(_last_needs(t), lambda m: m not in (1, 2), ["[short: W1234567]"])
    assert found.grounding == 0.5


VALUES = ["ab_1", "ab_12", "src/x.py", "x.py", "K1234", "plainword", "C3-PO", "1234"]
SAID = st.lists(st.sampled_from(VALUES), max_size=3).map(" ".join)


@given(st.lists(st.tuples(SAID, SAID), min_size=2, max_size=7), SAID, st.data())
@settings(max_examples=150, deadline=None)
def test_met_equals_a_search_of_the_text(said: list[tuple[str, str]], task: str, data: st.DataObject) -> None:
    """The oracle looks into the JSON of the messages with regular expressions, and knows no index."""
    t = _trajectory(*(({"v": a.split()}, b) for a, b in said), task=task)
    *before, (arguments, _) = said
    kept = [data.draw(st.booleans()) for _ in before]
    text = [json.dumps(m) for m in t.messages]
    here = [m == 0 or (1 + 2 * len(before) > m and kept[(m - 1) // 2]) for m in range(len(t.messages))]

    def stands(value: str, m: int) -> bool:
        return re.search(rf"(?<![A-Za-z0-9_]){re.escape(value)}(?![A-Za-z0-9_])", text[m]) is not None

    wanted = {v for v in arguments.split() if v != "plainword"}
    past = range(1, 1 + 2 * len(before))
    copied = sorted(v for v in wanted if not stands(v, 0) and any(stands(v, m) for m in past))
    needs = _last_needs(t)
    assert sorted(n.value for n in needs.values) == copied
    seen = [any(stands(v, m) and here[m] for m in past) for v in copied]
    found = met(needs, lambda m: here[m])
    assert found.grounding == (np.mean(seen) if seen else None)
    assert found.fully == (all(seen) if seen else None)


def _need(*blocks: int) -> Need:
    return Need("v", tuple(b * 2 + 1 for b in blocks), (), blocks, 1)


def test_lookups_by_hand() -> None:
    prices, refetch = Prices(0.1, 1.25), Refetch(output=5.0, call_chars=10, stays=2)
    bill = Lookups(prices, refetch, [100, 200, 300])
    needs = CallNeeds((_need(0), _need(0, 1)), ())
    bill.account(0, 1000, needs, [])
    assert (bill.cost, bill.count) == (0.0, 0)
    bill.account(1, 1000, needs, list(needs.values))
    first = 0.1 * 1000 + 1.25 * (100 + 200 + 10) + 5.0 * 10
    assert bill.cost == pytest.approx(first)
    bill.account(2, 1000, needs, list(needs.values))
    bill.account(3, 1000, None, [])
    assert bill.count == 1, "both are still there"
    assert bill.cost == pytest.approx(first + 2 * 0.1 * 300)
    bill.account(4, 500, needs, [needs.values[0]])
    assert bill.count == 2
    assert bill.cost == pytest.approx(first + 2 * 0.1 * 300 + 0.1 * 500 + 1.25 * 110 + 50)


@pytest.mark.parametrize("bad", [{"output": -1}, {"output": float("nan")}, {"call_chars": 1.5}, {"stays": -1}])
def test_bad_refetch(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Refetch(**bad)


def test_sending_everything_is_grounded_and_dropping_is_not(hashing_encoder: Any) -> None:
    exchanges = [({"n": f"K{n:04d}"}, f"the next is K{n + 1:04d}, the first was K0000") for n in range(30)]
    t = _trajectory(*exchanges, ({"back": "K0003"}, ""), ({"back": "K0020"}, ""))
    replay = Replay(methods_named(["none", "keep-last-16"], Prices()), hashing_encoder, EstimatedTokens())
    outcome = replay.run(t)
    everything, last = outcome.methods["none"], outcome.methods["keep-last-16"]
    assert all(m.fully for m in everything.met) and everything.refetches == 0 == everything.refetch_cost
    assert [m.fully for m in last.met].count(False) == 1
    assert last.refetches == 1 and last.refetch_cost > 0
    (gone,) = [m for m in last.met if not m.fully]
    assert [n.value for n in gone.missing] == ["K0003"]
