"""The rules: tables for what each means, and brute-force twins on random histories."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import CallbackError, ConfigError, EncoderError
from gemjax.history.artifacts import Artifacts
from gemjax.history.evidence import (
    DEFAULT_RULES,
    PAPER_RULES,
    RULES,
    Affinity,
    Balance,
    Errors,
    EvidenceView,
    Goal,
    Recent,
    Rule,
    Sources,
    State,
    UserWords,
    apply_rules,
)
from gemjax.history.queries import QUERIES, queries_of
from gemjax.history.records import Block, BlockContent, ToolCall, ToolResult
from gemjax.history.signals import BlockSignals

EMPTY = BlockContent("", "", (), ())


def made(writes="", touches="", error=None, sources="") -> BlockSignals:
    """Signals from space-separated names; what is written is touched as well."""
    w, t, s = (tuple(x.split()) for x in (writes, touches, sources))
    return BlockSignals(w, tuple(dict.fromkeys(w + t)), bool(w), error, s)


def view_of(found, goal="", latest=None, recent=0, vectors=None, **similarities) -> EvidenceView:
    """A view over blocks with the given signals. `latest` is a call in flight; by default the last block is latest."""
    vectors = np.zeros((len(found), 2), np.float32) if vectors is None else vectors
    contents = [
        BlockContent("", f"block {i}", (ToolCall(str(i), "think", ""),), (ToolResult(str(i), ""),))
        for i in range(len(found))
    ]
    blocks = [Block(i, (2 * i, 2 * i + 1), f"key{i}", 100, c) for i, c in enumerate(contents)]
    for name in ("to_goal", "to_state", "to_action"):
        similarities.setdefault(name, np.zeros(len(found)))
    view = EvidenceView(
        blocks=blocks,
        signals=found,
        goal=goal,
        latest=latest if latest is not None else contents[-1] if contents else EMPTY,
        similarity=lambda name: np.asarray(similarities[f"to_{name}"], dtype=np.float32),
        vectors=lambda: vectors,
    )
    if recent:
        view.record("recent", Recent(recent)(view))
    return view


def in_flight(path: str) -> BlockContent:
    return BlockContent("", "", (ToolCall("x", "Read", f'{{"file_path": "{path}"}}'),), ())


# --- what each rule means --------------------------------------------------------------------------------------------


def test_recent_keeps_the_last_blocks_and_all_of_a_short_history():
    assert Recent(2)(view_of([made()] * 5)) == {3: "one of the last 2 blocks", 4: "one of the last 2 blocks"}
    assert list(Recent(4)(view_of([made()] * 3))) == [0, 1, 2]
    assert Recent(4)(view_of([])) == {}


def test_goal_takes_the_most_similar_block_outside_recent():
    view = view_of([made()] * 5, to_goal=[0.1, 0.8, 0.3, 0.9, 0.95], recent=2)
    assert Goal()(view) == {1: "close to the goal (0.80)"}
    assert list(Goal(2)(view)) == [1, 2]


def test_without_a_recent_rule_nothing_counts_as_recent():
    assert list(Goal()(view_of([made()] * 5, to_goal=[0.1, 0.8, 0.3, 0.9, 0.95]))) == [4]


def test_equal_similarities_go_to_the_older_block_and_zero_is_none():
    assert list(Goal(2)(view_of([made()] * 5, to_goal=[0, 0.5, 0.5, 0.5, 0]))) == [1, 2]
    assert Goal()(view_of([made()] * 3, to_goal=[0, 0, 0])) == {}
    assert list(Goal(3)(view_of([made()] * 3, to_goal=[0, -0.2, -0.1]))) == [2, 1]


def test_vectors_without_direction_or_not_finite_count_as_no_similarity():
    assert list(Affinity(3)(view_of([made()] * 4, to_action=[np.nan, np.inf, 0.2, 0]))) == [2]


def test_affinity_takes_what_is_most_similar_to_the_latest_action():
    view = view_of([made()] * 5, to_action=[0.4, 0.1, 0.5, 0.9, 0.9], recent=2)
    assert Affinity(2)(view) == {2: "close to the latest action (0.50)", 0: "close to the latest action (0.40)"}


def test_affinity_may_prefer_blocks_on_the_same_artifacts():
    found = [made(touches="/w/a.py"), made(), made(touches="/w/b.py"), made()]
    view = view_of(found, to_action=[0.1, 0.3, 0.2, 0.25], latest=in_flight("/w/a.py"))
    assert list(Affinity(1)(view)) == [1]
    assert list(Affinity(1, path_bonus=0.5)(view)) == [0]


def test_affinity_may_prefer_short_blocks():
    view = view_of([made()] * 4, to_action=[0.5, 0.49, 0.1, 0.1], recent=2)
    view.blocks = [dataclasses.replace(b, chars=c) for b, c in zip(view.blocks, (4000, 500, 1000, 1000), strict=True)]
    assert list(Affinity(1)(view)) == [0]
    assert Affinity(1, length_penalty=0.02)(view) == {1: "close to the latest action (0.49)"}
    nothing = view_of([made()] * 3, to_action=[0, 0, 0])
    assert Affinity(length_penalty=0.02, path_bonus=1)(nothing) == {}


def test_queries_are_built_from_goal_and_latest_exchange_and_only_those_asked_for():
    calls = [ToolCall(str(i), f"tool{i}", "{}") for i in range(4)]
    contents = [BlockContent(f"why {i}", f"text {i}", (c,), ()) for i, c in enumerate(calls)]
    blocks = [Block(i, (i,), str(i), 1, c) for i, c in enumerate(contents[:3])]
    texts = {name: build("the goal", contents[3], blocks) for name, build in QUERIES.items()}
    assert texts["goal"] == ("the goal",) and texts["action"] == ("ACTION\ntool3 {}",)
    assert texts["state"] == ("the goal", "ACTION\ntool3 {}")
    assert texts["turn"] == ("why 3\n\ntext 3\n\nACTION\ntool3 {}",)
    assert texts["trail"] == tuple(f"ACTION\ntool{i} {{}}" for i in (1, 2, 3))
    assert QUERIES["trail"]("g", contents[2], blocks) == tuple(f"ACTION\ntool{i} {{}}" for i in (0, 1, 2))
    assert queries_of(DEFAULT_RULES) == ("goal", "state", "action")
    assert queries_of((Recent(), Errors())) == ()
    assert queries_of((lambda view: {},)) == ("goal", "state", "action")  # a user's rule that does not say


def test_state_takes_one_block_an_artifact_its_latest_write():
    found = [made("a.py"), made("b.py"), made("a.py"), made(touches="a.py b.py")]
    view = view_of(found, to_state=[0.9, 0.1, 0.2, 0.3])
    assert State()(view) == {2: "latest write of a.py", 1: "latest write of b.py"}
    assert list(State(1)(view)) == [2]


def test_state_ranks_named_artifacts_first_then_similarity_then_age():
    found = [made("a.py"), made("b.py"), made("c.py"), made("d.py"), made()]
    similar = [0.9, 0.2, 0.5, 0.5, 0.0]
    assert list(State(4)(view_of(found, to_state=similar))) == [0, 2, 3, 1]
    assert list(State(4)(view_of(found, to_state=similar, goal="Fix src/b.py please."))) == [0, 2, 3, 1]
    assert list(State(4)(view_of(found, to_state=similar, goal="Fix `b.py`, please."))) == [1, 0, 2, 3]
    touched = [*found[:-1], made(touches="d.py")]
    assert list(State(4)(view_of(touched, to_state=similar, recent=1))) == [3, 0, 2, 1]


@pytest.mark.parametrize(
    ("artifact", "goal", "named"),
    [
        ("/w/src/app.py", "see src/app.py:12.", True),
        ("/w/src/app.py", "see app.py", True),
        ("/w/src/app.py", "see (./src/app.py)", True),
        ("/w/src/app.py", "see myapp.py", False),
        ("/w/src", "the src folder", False),
        ("order_id=#W12", "cancel order #W12", True),
        ("order_id=#W12", "cancel order W12", True),
        ("order_id=#W12", "cancel order W123", False),
    ],
)
def test_how_a_goal_names_an_artifact(artifact, goal, named):
    view = view_of([made(artifact), made("other"), made()], goal=goal, to_state=[0.1, 0.9, 0])
    assert list(State(1)(view)) == ([0] if named else [1])


def test_state_follows_what_the_latest_exchange_touches():
    found = [made(touches="/w/a.py"), made(touches="/w/a.py"), made("/w/b.py"), made()]
    view = view_of(found, latest=in_flight("/w/a.py"), to_state=[0, 0, 0.9, 0])
    assert State()(view) == {
        1: "latest touch of /w/a.py, which the latest exchange touches",
        2: "latest write of /w/b.py",
    }
    assert State()(view_of(found, latest=in_flight("/w/b.py"))) == {2: "latest write of /w/b.py"}


def test_the_latest_exchange_is_not_its_own_earlier_touch():
    found = [made(touches="a.py"), made(), made(touches="a.py")]
    assert list(State()(view_of(found))) == [0]  # block 2 is the latest exchange itself
    found[2] = made("a.py")
    assert State()(view_of(found)) == {2: "latest write of a.py"}


def test_a_relative_path_is_the_one_absolute_path_it_ends():
    found = [made("src/app.py"), made("/w/src/app.py"), made()]
    assert list(State()(view_of(found))) == [1]
    two = [made("app.py"), made("/w/a/app.py"), made("/w/b/app.py"), made()]
    assert sorted(State()(view_of(two))) == [0, 1, 2]  # two files end so: the relative path stands for itself


def test_state_may_be_asked_to_leave_recent_blocks_out():
    found = [made("a.py"), made("a.py"), made("b.py")]
    assert sorted(State()(view_of(found, recent=2))) == [1, 2]
    assert list(State(outside_recent=True)(view_of(found, recent=2))) == [0]


def test_errors_are_kept_while_they_are_fresh_the_latest_first():
    found = [made(error="old")] + [made()] * 5 + [made(error="x"), made(), made(error="y"), made(error="z")]
    assert Errors()(view_of(found)) == {9: "error in the latest block: z", 8: "error 1 block ago: y"}
    assert list(Errors(keep=5, window=4)(view_of(found))) == [9, 8, 6]
    assert list(Errors(keep=9, window=100)(view_of(found))) == [9, 8, 6, 0]
    assert Errors(window=1)(view_of([made(error="x"), made()])) == {}


def test_sources_wake_when_half_of_the_blocks_read_something():
    found = [made(sources="a"), made(sources="b"), made(), made(), made()]
    assert Sources()(view_of(found)) == {}
    assert Sources()(view_of(found[:4])) == {1: "latest read of b", 0: "latest read of a"}
    assert Sources(share=0.3)(view_of(found)) != {}
    assert Sources(share=0)(view_of([made()] * 3)) == {}


def test_sources_keeps_the_latest_block_of_each_distinct_source():
    found = [made(sources=s) for s in ("a", "b", "a", "c b", "c", "d e")]
    view = view_of(found)
    assert Sources(keep=9)(view) == {
        5: "latest read of d and 1 more",
        4: "latest read of c",
        3: "latest read of b",
        2: "latest read of a",
    }
    assert list(Sources(keep=2)(view)) == [5, 4]


# --- brute force twins -----------------------------------------------------------------------------------------------

PATHS = ["a.py", "b.py", "/w/a.py", "/w/x/b.py", "/w/y/b.py", "id=7", "git repository"]
one = st.builds(
    lambda w, t, e, s: BlockSignals(tuple(w), tuple(dict.fromkeys(w + t)), bool(w), e, tuple(s)),
    st.lists(st.sampled_from(PATHS), max_size=2, unique=True),
    st.lists(st.sampled_from(PATHS), max_size=3, unique=True),
    st.sampled_from([None, None, "boom"]),
    st.lists(st.sampled_from(["a.py", "x.org/a", "search: q"]), max_size=2, unique=True),
)
histories = st.lists(one, min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)
counts = st.integers(1, 5)


def random_view(found, seed, recent, goal="") -> EvidenceView:
    """Similarities from a coarse grid, so that ties and zeros are common."""
    rng = np.random.default_rng(seed)
    grid = {name: rng.integers(-1, 3, len(found)) / 2 for name in ("to_goal", "to_state", "to_action")}
    return view_of(found, goal=goal, recent=recent, **grid)


def by_similarity(values, allowed, keep):
    """Repeatedly take the largest, the older on a tie: no sorting, no vectors."""
    left, out = [i for i in allowed if values[i] != 0], []
    while left and len(out) < keep:
        best = left[0]
        for i in left:
            if values[i] > values[best]:
                best = i
        left.remove(best)
        out.append(best)
    return out


@settings(max_examples=150, deadline=None)
@given(histories, seeds, counts, st.integers(0, 4))
def test_goal_and_affinity_twins(found, seed, keep, recent):
    view = random_view(found, seed, recent)
    allowed = [i for i in range(len(found)) if i < len(found) - recent]
    for rule, query in ((Goal(keep), "goal"), (Affinity(keep), "action")):
        assert list(rule(view)) == by_similarity(view.similarity(query), allowed, keep)


def test_affinity_may_pass_over_what_another_rule_named():
    view = view_of([made()] * 4, to_action=[0.9, 0.8, 0.7, 0.6], recent=1)
    rules = (
        Recent(1),
        Affinity(1),
        Affinity(1, outside=("recent", "affinity"), name="wide"),
        Affinity(2, name="again"),
    )
    named = apply_rules(rules, view)
    assert [list(blocks) for blocks in named.values()] == [[3], [0], [1], [0, 1]]
    with pytest.raises(ConfigError, match=r"Affinity\(outside=...\) must be a tuple of names of rules, got 'recent'"):
        Affinity(outside="recent")


def cosine_of_sums(rows, chosen):
    a, b = rows[sorted(chosen)].sum(0), rows.sum(0)
    return float(a @ b) / float(np.sqrt((a @ a) * (b @ b))) if chosen and a.any() else -1.0


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), seeds, counts, st.integers(0, 4), st.booleans())
def test_balance_twin(n, seed, keep, recent, twins):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 5)) + 1.0
    rows[rng.random(n) < 0.2] = 0.0
    if twins:
        rows[-1] = rows[0]
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    view = view_of([made()] * n, recent=recent, vectors=rows.astype(np.float32))
    named = Balance(keep)(view)
    taken = set(range(max(n - recent, 0), n))
    for index in named:
        gains = {i: cosine_of_sums(rows, taken | {i}) for i in range(n) if i not in taken and rows[i].any()}
        assert gains[index] >= max(gains.values()) - 3e-6
        assert gains[index] >= cosine_of_sums(rows, taken) - 1e-6
        assert not twins or index != n - 1 or n == 1 or 0 in taken
        taken.add(index)
    if len(named) < keep:
        left = [cosine_of_sums(rows, taken | {i}) for i in range(n) if i not in taken and rows[i].any()]
        assert max(left, default=-1.0) <= cosine_of_sums(rows, taken) + 3e-6


def test_balance_makes_up_for_what_other_rules_left_out():
    rows = np.eye(3, dtype=np.float32)[[0, 0, 0, 1, 1, 2]]
    named = Balance(2)(view_of([made()] * 6, recent=1, vectors=rows))
    assert list(named) == [0, 3]
    assert named[0] == "brings the mean of the kept closer to that of all (0.27 to 0.76)"
    assert Balance()(view_of([made()] * 4)) == {} == Balance()(view_of([]))


@settings(max_examples=150, deadline=None)
@given(histories, counts, st.integers(1, 10))
def test_errors_twin(found, keep, window):
    n = len(found)
    expected = [i for i in reversed(range(n)) if n - i <= window and found[i].error is not None][:keep]
    assert list(Errors(keep, window)(view_of(found))) == expected


@settings(max_examples=150, deadline=None)
@given(histories, counts, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_sources_twin(found, keep, share):
    found = [dataclasses.replace(f, touches=()) for f in found]  # no aliases: that is another test
    view, n = view_of(found), len(found)
    reading = [i for i in range(n) if found[i].sources]
    expected = []
    if reading and len(reading) / n >= share:
        last = {s: i for i in range(n) for s in found[i].sources}
        expected = sorted(set(last.values()), reverse=True)[:keep]
    assert list(Sources(keep, share)(view)) == expected


@settings(max_examples=200, deadline=None)
@given(histories, seeds, counts, st.integers(0, 3), st.sampled_from(["", "fix b.py", "order 7", "/w/a.py and a.py"]))
def test_state_twin(found, seed, keep, recent, goal):
    view, n = random_view(found, seed, recent, goal), len(found)
    everything = {p for f in found for p in f.touches}

    def same(path):  # the artifact's one name
        ends = [p for p in everything if p.startswith("/") and not path.startswith("/") and p.endswith("/" + path)]
        return ends[0] if len(ends) == 1 else path

    def is_named(artifact):
        words = set(goal.split())
        touched = {same(p) for i in range(n) if i >= n - recent for p in found[i].touches}
        touched |= {same(p) for p in found[-1].touches}
        spellings = {artifact} | {artifact[i + 1 :] for i, c in enumerate(artifact) if c == "/"}
        if artifact.startswith("id="):
            spellings.add("7")
        return bool(touched & {artifact} or words & spellings or touched & (spellings - {artifact}))

    chosen = {}
    for artifact in {same(p) for p in everything}:
        writers = [i for i in range(n) if artifact in map(same, found[i].writes)]
        touchers = [i for i in range(n - 1) if artifact in map(same, found[i].touches)]
        if writers:
            chosen[artifact] = writers[-1]
        elif touchers and artifact in map(same, found[-1].touches):
            chosen[artifact] = touchers[-1]
    values = view.similarity("state")
    first = {i for a, i in chosen.items() if is_named(a)}
    order = sorted(set(chosen.values()), key=lambda i: (i not in first, -values[i], i))
    assert list(State(keep)(view)) == order[:keep]


@settings(max_examples=60, deadline=None)
@given(histories, seeds)
def test_the_presets_name_blocks_with_one_line_reasons_and_are_deterministic(found, seed):
    named = apply_rules(DEFAULT_RULES, random_view(found, seed, 0))
    assert list(named) == [r.name for r in DEFAULT_RULES]
    assert {type(r) for r in DEFAULT_RULES} == set(RULES.values())
    for rule in DEFAULT_RULES:
        blocks = named[rule.name]
        assert list(blocks) == sorted(blocks) and all(0 <= i < len(found) for i in blocks)
        assert all(reason and reason.isprintable() for reason in blocks.values())
        assert len(blocks) <= (rule.keep or len(found))
    assert named == apply_rules(DEFAULT_RULES, random_view(found, seed, 0))
    outside = set(named["goal"]) | set(named["affinity"]) | set(named["affinity-wide"]) | set(named["balance"])
    assert not outside & set(named["recent"])
    assert not set(named["affinity-wide"]) & set(named["affinity"])


# --- the view --------------------------------------------------------------------------------------------------------


def test_similarities_are_asked_for_once_and_only_when_needed():
    asked = []

    def similarity(name):
        asked.append(name)
        return np.zeros(3)

    view = EvidenceView(
        blocks=view_of([made()] * 3).blocks, signals=[made()] * 3, goal="", latest=EMPTY, similarity=similarity
    )
    apply_rules((Recent(), Errors(), Sources(), State()), view)
    assert asked == []  # nothing was written, so there was nothing to rank
    apply_rules((Goal(), Affinity(), Goal(2, name="goal again")), view)
    assert asked == ["goal", "action"]


def test_without_an_encoder_the_other_rules_work_and_the_error_says_what_to_do():
    blocks = view_of([made(error="x")] * 3).blocks
    view = EvidenceView(blocks=blocks, signals=[made(error="x")] * 3, goal="", latest=EMPTY)
    assert list(apply_rules((Recent(1), Errors(1)), view)["error"]) == [2]
    with pytest.raises(EncoderError, match="pass an encoder, or leave out the rules goal, state, affinity and balance"):
        Goal()(view)
    with pytest.raises(EncoderError, match="asked for the blocks' vectors and there is no encoder; pass an encoder"):
        Balance()(view)


def test_a_similarity_of_the_wrong_shape_is_refused():
    view = EvidenceView(blocks=view_of([made()] * 3).blocks, signals=[made()] * 3, goal="", latest=EMPTY,
                        similarity=lambda name: np.zeros((3, 1)))  # fmt: skip
    with pytest.raises(EncoderError, match=r"must be \[3\], got \[3, 1\]"):
        view.similarity("goal")
    with pytest.raises(EncoderError, match=r"must be \[3, d\], got \[2, 2\]"):
        view_of([made()] * 3, vectors=np.zeros((2, 2))).vectors()


def test_signals_must_match_the_blocks():
    with pytest.raises(ValueError, match="one entry a block, got 1 for 2 blocks"):
        EvidenceView(blocks=view_of([made()] * 2).blocks, signals=[made()], goal="", latest=EMPTY)


def test_rules_see_what_earlier_rules_named():
    view = view_of([made()] * 5)
    assert view.named("recent") == frozenset()
    assert view.record("recent", {4: "b", 3: "a"}) == {3: "a", 4: "b"}
    assert view.named("recent") == {3, 4}


def test_signals_of_a_latest_exchange_in_flight_come_from_its_calls():
    view = view_of([made()], latest=in_flight("/w/a.py"))
    assert not view.latest_is_complete and view.latest_signals.touches == ("/w/a.py",)
    done = view_of([made("b.py")])
    assert done.latest_is_complete and done.latest_signals is done.signals[-1]


def test_a_users_rule_is_any_object_with_a_name_that_can_be_called():
    class Longest:
        name = "longest"

        def __call__(self, view):
            longest = max(view.blocks, key=lambda b: b.chars)
            return {longest.index: "the longest block"}

    assert isinstance(Longest(), Rule)
    assert apply_rules((*PAPER_RULES, Longest()), view_of([made()] * 3))["longest"] == {0: "the longest block"}


def test_a_rule_that_names_no_block_is_refused():
    class Wrong:
        name = "wrong"

        def __call__(self, view):
            return {7: "x"}

    with pytest.raises(ConfigError, match=r"rule 'wrong' names blocks \[7\], there are 3"):
        apply_rules((Wrong(),), view_of([made()] * 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recent(0), r"Recent\(keep=...\) must be a positive integer, got 0; leave the rule out instead"),
        (lambda: Recent(True), "got True"),
        (lambda: Goal(-1), r"Goal\(keep"),
        (lambda: State(2.0), r"State\(keep=...\) must be a positive integer, got 2.0"),
        (lambda: Errors(2, 0), r"Errors\(window"),
        (lambda: Errors("2"), "got '2'"),
        (lambda: Sources(share=1.5), r"Sources\(share=...\) must be a number from 0 to 1, got 1.5"),
        (lambda: Sources(share=float("nan")), "got nan"),
        (lambda: Affinity(path_bonus=-1), r"Affinity\(path_bonus"),
        (lambda: Affinity(path_bonus=float("inf")), "got inf"),
        (lambda: Affinity(length_penalty="x"), r"Affinity\(length_penalty"),
        (lambda: Affinity(path_bonus=True), r"Affinity\(path_bonus=...\) must be a number of at least 0, got True"),
        (lambda: Affinity(length_penalty=False), "got False"),
        (lambda: Affinity(query=["action"]), r"Affinity\(query=...\) must be one of .*, got \['action'\]"),
        (lambda: Affinity(distinct=1), r"Affinity\(distinct=...\) must be True or False, got 1"),
        (lambda: State(outside_recent="no"), r"State\(outside_recent=...\) must be True or False, got 'no'"),
        (lambda: Affinity(query="mood"), "must be one of goal, state, action, turn, trail, got 'mood'"),
    ],
)
def test_parameters_are_checked_at_construction(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("rule", RULES.values())
@pytest.mark.parametrize("name", ["", None, 3])
def test_every_rule_needs_a_name(rule, name):
    with pytest.raises(ConfigError, match=rf"{rule.__name__}\(name=...\) must be a non-empty string, got {name!r}"):
        rule(name=name)


def test_a_rule_cannot_change_what_the_next_one_sees():
    rows = np.eye(3)
    view = view_of([made()] * 3, vectors=rows, to_action=[0.25, np.nan, 0.5])
    for values in (view.vectors(), view.similarity("action")):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 9
    rows[0, 0] = 2.0  # the owner may
    assert view.vectors()[0, 0] == 2.0
    assert view.similarity("action").tolist() == [0.25, 0.0, 0.5]


def test_a_rule_that_raises_is_told_from_one_that_returns_nonsense():
    class Broken:
        name = "broken"

        def __call__(self, view):
            return {0: str(1 / 0)}

    class List:
        name = "list"

        def __call__(self, view):
            return [0]

    with pytest.raises(CallbackError, match=r"^rule 'broken' raised ZeroDivisionError: division by zero$"):
        apply_rules((Broken(),), view_of([made()] * 3))
    with pytest.raises(CallbackError, match=r"^rule 'list' must return block indices with reasons; AttributeError"):
        apply_rules((List(),), view_of([made()] * 3))


def test_presets():
    assert [r.name for r in PAPER_RULES] == ["recent", "goal", "state", "error", "source"]
    assert (Recent().keep, Goal().keep, State().keep, Errors().keep, Errors().window) == (4, 1, 3, 2, 8)
    assert (Sources().keep, Sources().share) == (4, 0.5)
    assert (
        UserWords(),
        Recent(3),
        Affinity(3),
        Balance(3),
        Goal(1),
        State(2, outside_recent=True),
        Errors(2, 8),
        Sources(4),
        Affinity(3, outside=("recent", "affinity"), name="affinity-wide"),
    ) == DEFAULT_RULES


def test_the_example_of_the_documentation_runs_and_prints_what_it_says(capsys):
    page = (Path(__file__).parents[2] / "docs" / "protection-rules.md").read_text()
    code, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.S).groups()
    exec(compile(code, "docs/protection-rules.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == printed


ENDINGS = ["a.py", "src/a.py", "/r/src/a.py", "/r/a.py", "/q/src/a.py", "r/a.py", "/a.py", "search: a.py"]


@given(st.lists(st.tuples(st.lists(st.sampled_from(ENDINGS), max_size=3), st.booleans()), max_size=8), st.data())
def test_names_kept_across_requests_are_those_of_a_history_read_anew(steps, data):
    """Appending, taking back and exchanges in flight, against the definition: the one absolute path with that end."""
    kept, history = Artifacts(), []
    for touches, back in steps:
        if back and history:
            del history[data.draw(st.integers(0, len(history) - 1)) :]
        history.append(BlockSignals(touches=tuple(touches)))
        flying = tuple(data.draw(st.lists(st.sampled_from(ENDINGS), max_size=2)))
        kept.update(history, flying)
        touched = {path for found in history for path in found.touches} | set(flying)
        for path in ENDINGS:
            ends = [one for one in touched if one[:1] == "/" and one.endswith("/" + path)]
            alias = path in touched and path[:1] != "/" and len(ends) == 1
            assert kept.name(path) == (ends[0] if alias else path)
        assert kept.aliases() == {p: kept.name(p) for p in touched if kept.name(p) != p}
