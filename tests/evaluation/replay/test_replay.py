"""The replay loop: bills, retention and invariants, on made conversations of each wire format and on recorded runs."""

import dataclasses
import io
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from gemjax.errors import ConfigError, RequestError
from gemjax.evaluation.replay import Prices, Replay, Report, Trajectory, load, methods_named, requests, run
from gemjax.evaluation.replay.baselines import ClearToolResults, KeepLast, LatestAction, RandomBlocks
from gemjax.evaluation.replay.compressed import BrokenPromise, Compressed
from gemjax.evaluation.replay.moment import Method, Moment, Reference
from gemjax.evaluation.replay.tokens import EstimatedTokens
from gemjax.history.blocks import validate
from gemjax.history.config import GEMConfig
from gemjax.history.policy import CostAwarePolicy

FORMATS = ("chat", "responses", "anthropic")
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu")


def conversation(wire: str, blocks: int, size: int = 300, name: str = "made") -> Trajectory:
    """A run of `blocks` tool calls, one a turn, over a handful of files, closed by a plain answer."""
    messages: list[dict[str, Any]] = []
    if wire == "chat":
        messages.append({"role": "system", "content": "You are an agent."})
    messages.append(_user(wire, "Fix the failing test of the parser."))
    for n in range(blocks):
        file = f"src/{WORDS[n % 5]}.py"
        result = " ".join(f"{WORDS[(n * k) % 12]}{k}" for k in range(size // 8))
        messages += _exchange(wire, f"call_{n}", {"path": file, "line": n}, f"{file}: {result}")
        if n % 10 == 9:
            messages += [_answer(wire, f"Step {n} is done."), _user(wire, f"Go on with step {n + 1}.")]
    messages.append(_answer(wire, "Done."))
    template = {"chat": {"model": "m"}, "responses": {"instructions": "Be brief."}, "anthropic": {"system": "s"}}
    return Trajectory(f"{name}-{wire}-{blocks}", wire, template[wire], messages, None, "made here")


def _user(wire: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text} if wire == "responses" else _plain("user", text)


def _answer(wire: str, text: str) -> dict[str, Any]:
    if wire == "responses":
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return _plain("assistant", text)


def _plain(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _exchange(wire: str, call: str, arguments: dict[str, Any], result: str) -> list[dict[str, Any]]:
    text = json.dumps(arguments)
    if wire == "chat":
        function = {"name": "read", "arguments": text}
        return [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": call, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call, "content": result},
        ]
    if wire == "responses":
        return [
            {"type": "function_call", "call_id": call, "name": "read", "arguments": text},
            {"type": "function_call_output", "call_id": call, "output": result},
        ]
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": "read", "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": result}]},
    ]


class Spy(Method):
    """Another method, and every list of messages it sent."""

    def __init__(self, method: Any) -> None:
        self.method = method
        self.name = method.name
        self.sent: list[list[dict[str, Any]]] = []
        self.moments: list[Moment] = []

    def begin(self, trajectory: Trajectory) -> None:
        self.method.begin(trajectory)

    def forward(self, moment: Moment) -> list[dict[str, Any]]:
        out = self.method.forward(moment)
        self.sent.append(list(out))
        self.moments.append(moment)
        return out


@dataclasses.dataclass
class Scripted(Method):
    """A user's own method."""

    rule: Callable[[Moment], list[dict[str, Any]]]
    name: str = "mine"

    def begin(self, trajectory: Trajectory) -> None:
        pass

    def forward(self, moment: Moment) -> list[dict[str, Any]]:
        return self.rule(moment)


def _replay(methods: list[Method], encoder: Any, **options: Any) -> Replay:
    return Replay(methods, encoder, EstimatedTokens(), strict=True, **options)


def _all_methods() -> list[Method]:
    return methods_named(None, Prices())


def _brute_force_cost(t: Trajectory, sent: list[list[dict[str, Any]]], prices: Prices) -> tuple[float, int, int]:
    """Serialise every request whole and compare it with the one before, message by message."""
    cost, chars, events = 0.0, 0, 0
    before: list[str] | None = None
    for messages in sent:
        texts = [json.dumps(m, ensure_ascii=False, separators=(",", ":")) for m in messages]
        size = _length(t, messages)
        common = 0
        while before is not None and common < min(len(before), len(texts)) and texts[common] == before[common]:
            common += 1
        hit = 0 if before is None else _length(t, messages[:common])
        events += before is not None and common < len(before)
        cost += prices.read * hit + prices.write * (size - hit)
        chars += size
        before = texts
    return cost, chars, events


def _length(t: Trajectory, messages: list[dict[str, Any]]) -> int:
    return len(json.dumps({**t.request_template, t.wire.key: messages}, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("wire", FORMATS)
def test_bills_of_all_methods_equal_brute_force(wire: str, hashing_encoder: Any) -> None:
    t = conversation(wire, 40)
    prices = Prices()
    # The compressor's own methods cannot be spied on from outside without hiding what they are.
    spies = [Spy(m) for m in _all_methods() if not isinstance(m, Compressed)]
    mine = [m for m in _all_methods() if isinstance(m, Compressed)]
    outcome = _replay([*spies, *mine], hashing_encoder).run(t)
    for spy in spies:
        cost, chars, events = _brute_force_cost(t, spy.sent, prices)
        totals = outcome.methods[spy.name].totals
        assert totals.cost == pytest.approx(cost), spy.name
        assert (totals.chars, totals.events, totals.requests) == (chars, events, outcome.requests), spy.name
    full = outcome.methods["none"].totals
    assert full.events == 0
    assert full.chars == sum(_length(t, t.messages[: turn.count]) for turn in requests(t))


@pytest.mark.parametrize("wire", FORMATS)
def test_every_forwarded_request_is_valid_and_keeps_its_promises(wire: str, hashing_encoder: Any) -> None:
    for delta in (0.05, 0.5, 1.0):
        outcome = _replay(methods_named(None, Prices(), delta), hashing_encoder).run(conversation(wire, 64))
        assert outcome.invalid_as_recorded == 0
        for name, method in outcome.methods.items():
            assert method.invalid == 0, name
            assert method.broken == [], name
        for name in ("paper", "cost-aware"):
            assert outcome.methods[name].protected_kept <= 1
            assert outcome.methods[name].totals.chars <= outcome.methods["none"].totals.chars
    assert outcome.methods["cost-aware"].totals.chars < outcome.methods["none"].totals.chars
    assert 0 < (outcome.methods["cost-aware"].core_share or 0) < 1


def test_below_16_blocks_every_policy_sends_everything(hashing_encoder: Any) -> None:
    outcome = _replay(_all_methods(), hashing_encoder).run(conversation("chat", 15))
    assert outcome.checkpoints == 0
    for name in ("paper", "cost-aware", "keep-last-16", "random", "latest-action"):
        assert outcome.methods[name].totals == outcome.methods["none"].totals
        assert outcome.methods[name].retained == []


def test_without_a_cache_the_cost_aware_policy_rewrites_freely(hashing_encoder: Any) -> None:
    t = conversation("chat", 60)
    cached = _replay(_all_methods(), hashing_encoder).run(t).methods["cost-aware"]
    prices = Prices(1, 1, 1)
    plain = _replay(methods_named(None, prices), hashing_encoder, prices=prices).run(t)
    free = plain.methods["cost-aware"]
    assert free.totals.cost == pytest.approx(free.totals.chars)
    assert free.totals.chars < cached.totals.chars
    assert free.totals.events > cached.totals.events


def test_retention_equals_a_count_by_hand(hashing_encoder: Any) -> None:
    t = conversation("chat", 24)
    spy = Spy(KeepLast(16))
    outcome = _replay([spy], hashing_encoder).run(t)
    expected = []
    for turn, sent in zip(requests(t), spy.sent, strict=True):
        if turn.next is None or len(turn.blocks) < 16:
            continue
        action = hashing_encoder.encode([turn.next.action_text])[0]
        scores = [float(hashing_encoder.encode([b.content.selection_text])[0] @ action) for b in turn.blocks]
        nearest = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:3]
        hits = [all(any(turn.messages[m] is s for s in sent) for m in turn.blocks[i].messages) for i in nearest]
        expected.append(sum(hits) / 3)
    assert outcome.checkpoints == len(expected) > 0
    assert outcome.methods["keep-last-16"].retained == pytest.approx(expected)
    assert outcome.methods["none"].retained == [1.0] * len(expected)


def test_a_cleared_result_is_not_retained(hashing_encoder: Any) -> None:
    t = conversation("chat", 24)
    outcome = _replay([ClearToolResults(trigger=0, clear_at_least=0)], hashing_encoder).run(t)
    assert np.mean(outcome.methods["clear-tool-results"].retained) < 0.7


def test_keep_last_drops_whole_blocks_only() -> None:
    t = conversation("anthropic", 20)
    method = KeepLast(3)
    last = list(requests(t))[-1]
    sent = method.forward(_moment(t, last))
    assert validate(t.request() | {"messages": sent}) == []
    plain = [m for i, m in enumerate(last.messages) if not any(i in b.messages for b in last.blocks)]
    assert len(sent) == len(plain) + 2 * 3
    assert [id(m) for m in plain] == [id(m) for m in sent if any(m is p for p in plain)]


def _moment(t: Trajectory, turn: Any, forwarded: frozenset[int] | None = None, event: bool = False) -> Moment:
    reference = Reference(frozenset(range(len(turn.blocks))) if forwarded is None else forwarded, event)

    def no_vectors(*_: Any) -> Any:
        raise AssertionError("not needed here")

    return Moment(t, turn, reference, lambda m: _length(t, list(m)), no_vectors, no_vectors)


@pytest.mark.parametrize("wire", FORMATS)
def test_clearing_keeps_three_results_and_waits_for_its_trigger(wire: str) -> None:
    t = conversation(wire, 60, size=600)
    method = ClearToolResults(trigger=20_000, clear_at_least=0)
    method.begin(t)
    placeholder = json.dumps(method.placeholder)
    cleared: list[int] = []
    for turn in requests(t):
        sent = method.forward(_moment(t, turn))
        text = json.dumps(sent)
        cleared.append(text.count(placeholder))
        assert validate({**t.request_template, t.wire.key: sent}, format=wire) == []
        assert len(sent) == turn.count
        if _length(t, turn.messages) <= 20_000:
            assert sent == turn.messages
        if cleared[-1]:
            # The latest three are whole, and calls stay.
            assert text.count("call_") == json.dumps(turn.messages).count("call_")
            assert len(turn.blocks) - cleared[-1] >= 3
    assert cleared == sorted(cleared), "what was cleared stays cleared"
    assert cleared[0] == 0 < cleared[-1]
    # In batches: it does not fire again at each request.
    assert len(set(cleared)) < len(cleared) / 2


def test_clearing_that_frees_too_little_does_not_happen() -> None:
    t = conversation("chat", 30)
    method = ClearToolResults(trigger=4_000, clear_at_least=10**9)
    method.begin(t)
    for turn in requests(t):
        assert method.forward(_moment(t, turn)) == turn.messages


def test_cleared_copies_are_stable_objects() -> None:
    t = conversation("chat", 30)
    method = ClearToolResults(trigger=1_000, clear_at_least=0)
    method.begin(t)
    before: list[dict[str, Any]] = []
    for turn in requests(t):
        sent = method.forward(_moment(t, turn))
        assert sum(a is not b for a, b in zip(before, sent, strict=False)) <= 2
        before = sent


def test_matched_baselines_follow_count_and_schedule(hashing_encoder: Any) -> None:
    t = conversation("chat", 60)
    reference = methods_named(["cost-aware"], Prices())
    held, fresh, drawn = Spy(LatestAction(hold=True)), Spy(LatestAction()), Spy(RandomBlocks(seed=3))
    outcome = _replay([*reference, held, fresh, drawn], hashing_encoder).run(t)
    events = [m.reference.event for m in held.moments]
    assert sum(events) >= 1
    for spy in (held, fresh, drawn):
        for moment, sent in zip(spy.moments, spy.sent, strict=True):
            here = {id(m) for m in sent}
            kept = [b.index for b in moment.blocks if id(moment.turn.messages[b.messages[0]]) in here]
            assert len(kept) == len(moment.reference.forwarded), spy.name
            assert not kept or kept[-1] == len(moment.blocks) - 1
    for name in ("latest-action-held", "random"):
        assert outcome.methods[name].totals.events <= sum(events)
    again = Spy(RandomBlocks(seed=3))
    _replay([*methods_named(["cost-aware"], Prices()), again], hashing_encoder).run(t)
    assert [[id(m) for m in s] for s in again.sent] == [[id(m) for m in s] for s in drawn.sent]


def test_the_reference_runs_even_if_it_is_not_shown(hashing_encoder: Any) -> None:
    t = conversation("chat", 40)
    alone = _replay([RandomBlocks()], hashing_encoder).run(t)
    beside = _replay([*methods_named(["cost-aware"], Prices()), RandomBlocks()], hashing_encoder).run(t)
    assert alone.methods["random"].totals == beside.methods["random"].totals


def test_a_method_of_ones_own_that_breaks_requests_is_counted(hashing_encoder: Any) -> None:
    t = conversation("chat", 6)
    mine = Scripted(lambda m: [x for i, x in enumerate(m.turn.messages) if i != 3])
    outcome = _replay([mine], hashing_encoder).run(t)
    # Without the first result every request but the first two is refused.
    assert outcome.methods["mine"].invalid == outcome.requests - 2
    assert outcome.methods["none"].invalid == 0


def thoughtful(blocks: int, model: str = "claude-sonnet-5-5") -> Trajectory:
    """A run whose every call comes with signed thinking, by a model that binds it to what stands before it."""
    t = conversation("anthropic", blocks)
    messages: list[dict[str, Any]] = []
    for n, message in enumerate(t.messages):
        if message["role"] == "assistant" and isinstance(message["content"], list):
            thought = {"type": "thinking", "thinking": f"think {n}", "signature": f"sig{n}"}
            message = {**message, "content": [thought, *message["content"]]}
        messages.append(message)
    template = {"model": model, "thinking": {"type": "adaptive"}}
    return dataclasses.replace(t, messages=messages, request_template=template)


def test_signed_thinking_behind_a_change_is_a_refused_request(hashing_encoder: Any) -> None:
    last = KeepLast(8)
    methods = [last, *methods_named(["cost-aware", "paper"], Prices(1, 1, 1), delta=1.0)]
    found = _replay(methods, hashing_encoder).run(thoughtful(40)).methods
    assert found["cost-aware"].invalid == found["paper"].invalid == found["none"].invalid == 0
    assert found["cost-aware"].totals.chars < found["none"].totals.chars
    assert found[last.name].invalid > 0
    older = _replay([last], hashing_encoder).run(thoughtful(40, "claude-sonnet-4-5"))
    assert older.methods[last.name].invalid == 0


def test_a_compressor_that_ignores_the_binding_is_found_out(hashing_encoder: Any) -> None:
    config = GEMConfig(bound_thinking="ignore", delta=1.0, policy=CostAwarePolicy(read=1, write=1))
    outcome = _replay([Compressed("mine", config)], hashing_encoder).run(thoughtful(40))
    assert outcome.methods["mine"].invalid > 0


def test_a_recording_that_is_invalid_itself_is_not_blamed_on_methods(hashing_encoder: Any) -> None:
    t = conversation("chat", 20)
    broken = dataclasses.replace(t, messages=[m for i, m in enumerate(t.messages) if i != 3])
    outcome = _replay(_all_methods(), hashing_encoder).run(broken)
    assert outcome.invalid_as_recorded == outcome.requests - 2
    assert all(m.invalid == 0 and m.broken == [] for m in outcome.methods.values())
    assert outcome.methods["cost-aware"].totals == outcome.methods["none"].totals


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda request: {**request, "messages": request["messages"][1:]}, "own messages"),
        (lambda request: {**request, "messages": [dict(m) for m in request["messages"]]}, "own messages"),
        (lambda request: {**request, "extra": 1}, "fields beside"),
    ],
)
def test_a_broken_promise_is_raised_or_listed(
    harm: Callable[[Any], Any], message: str, hashing_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gemjax.history.compressor import HistoryCompressor

    compress = HistoryCompressor.compress

    def harmed(self: HistoryCompressor, *arguments: Any, **options: Any) -> Any:
        result = compress(self, *arguments, **options)
        if result.status != "compressed":
            return result
        return dataclasses.replace(result, request=harm(result.request))

    monkeypatch.setattr(HistoryCompressor, "compress", harmed)
    methods = methods_named(["cost-aware"], Prices(1, 1, 1))
    with pytest.raises(BrokenPromise, match=message):
        _replay(methods, hashing_encoder).run(conversation("chat", 30))
    lenient = Replay(methods_named(["cost-aware"], Prices(1, 1, 1)), hashing_encoder, EstimatedTokens())
    assert any(message in line for line in lenient.run(conversation("chat", 30)).methods["cost-aware"].broken)


def test_encoder_use_is_what_one_method_alone_would_need(hashing_encoder: Any) -> None:
    t = conversation("chat", 30)
    outcome = _replay(_all_methods(), hashing_encoder).run(t)
    assert outcome.methods["none"].encoder_texts == 0
    assert outcome.methods["keep-last-16"].encoder_texts == 0
    # Every block once, then the queries of each request.
    assert outcome.methods["cost-aware"].encoder_texts >= outcome.blocks
    assert outcome.methods["cost-aware"].encoder_tokens > outcome.methods["cost-aware"].encoder_texts
    assert outcome.methods["paper"].encoder_texts <= 4 * outcome.requests + outcome.blocks


def test_an_encoder_price_enters_the_bill(hashing_encoder: Any) -> None:
    t = conversation("chat", 30)
    free = _replay(_all_methods(), hashing_encoder).run(t)
    priced = _replay(_all_methods(), hashing_encoder, prices=Prices(encoder=0.5)).run(t)
    for name, outcome in priced.methods.items():
        before = free.methods[name]
        assert outcome.totals.token_cost == pytest.approx(before.totals.token_cost + 0.5 * before.encoder_tokens)
        assert (outcome.totals.cost > before.totals.cost) == (before.encoder_texts > 0)
        assert outcome.totals.tokens == before.totals.tokens


def test_the_next_action_can_be_the_whole_turn(hashing_encoder: Any) -> None:
    t = conversation("chat", 24)
    action = _replay([KeepLast()], hashing_encoder).run(t)
    turn = _replay([KeepLast()], hashing_encoder, action_view="turn").run(t)
    assert action.checkpoints == turn.checkpoints


# --- run and report


def _save(t: Trajectory, folder: Path) -> None:
    body = {"source": t.source, "domain": "made", "goal": "g", "messages": t.messages}
    (folder / f"{t.id}.json").write_text(json.dumps(body))


@pytest.fixture
def report(tmp_path: Path, hashing_encoder: Any) -> Report:
    for blocks in (12, 20, 40):
        _save(conversation("chat", blocks), tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    return run(tmp_path, encoder=hashing_encoder, counter=EstimatedTokens(), strict=True)


def test_report_sums_and_means(report: Report) -> None:
    data = report.to_json()
    json.dumps(data, allow_nan=False)
    assert list(data["methods"])[:3] == ["none", "paper", "cost-aware"]
    assert [t["id"] for t in data["trajectories"]] == ["made-chat-12", "made-chat-20", "made-chat-40"]
    assert [Path(s["path"]).name for s in data["skipped"]] == ["notes.txt"]
    assert not data["interrupted"]
    for name, row in data["methods"].items():
        parts = [t["methods"][name] for t in data["trajectories"]]
        full = [t["methods"]["none"] for t in data["trajectories"]]
        for ratio, amount in (("chars_ratio", "chars"), ("cost_ratio", "cost"), ("token_ratio", "tokens")):
            each = [p[amount] / f[amount] for p, f in zip(parts, full, strict=True)]
            assert row[f"{ratio}_mean"] == pytest.approx(sum(each) / 3)
            assert row[ratio] == pytest.approx(sum(p[amount] for p in parts) / sum(f[amount] for f in full))
            assert row[f"{ratio}_se"] == pytest.approx(np.std(each, ddof=1) / math.sqrt(3))
        top = [p["top3"] for p in parts if p["top3"] is not None]
        assert len(top) == 2
        assert row["top3_mean"] == pytest.approx(sum(top) / 2)
        assert row["events"] == sum(p["events"] for p in parts)
        assert row["invalid"] == 0
    none = data["methods"]["none"]
    assert (none["chars_ratio"], none["cost_ratio"], none["top3"], none["events"]) == (1.0, 1.0, 1.0, 0)


@pytest.mark.parametrize("width", [80, 200])
def test_report_prints_every_method_and_trajectory(report: Report, width: int) -> None:
    out = io.StringIO()
    report.print(Console(file=out, width=width, force_terminal=True, color_system=None))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for name in report.names:
        assert name in text
    assert "made-chat-40" in text
    assert "not read" in text
    assert "interrupted" not in text
    # No figure is cut: the only ellipsis that may stand there ends an id.
    row = next(line for line in text.splitlines() if "made-chat-40" in line)
    assert "\N{HORIZONTAL ELLIPSIS}" not in row


def test_report_prints_the_bill_without_its_longest_run(report: Report) -> None:
    out = io.StringIO()
    report.print(Console(file=out, width=200))
    text = " ".join(out.getvalue().split())
    assert "without the longest run, made-chat-40 (40 blocks): " in text
    for name in set(report.names) - {"none"}:
        rest = [o.methods for o in report.outcomes if o.trajectory.id != "made-chat-40"]
        whole = sum(m["none"].totals.cost for m in rest)
        cost = sum(m[name].totals.cost for m in rest)
        more = sum(m[name].refetch_cost for m in rest)
        assert f"{name} {cost / whole:.2f} / {(cost + more) / whole:.2f}" in text


def test_interruption_keeps_what_is_finished(tmp_path: Path, hashing_encoder: Any) -> None:
    for blocks in (4, 5, 6):
        _save(conversation("chat", blocks), tmp_path)

    def stop(moment: Moment) -> list[dict[str, Any]]:
        if len(moment.blocks) == 5 and len(moment.trajectory.messages) > 13:
            raise KeyboardInterrupt
        return moment.turn.messages

    found = run(tmp_path, ["none", Scripted(stop)], encoder=hashing_encoder, counter=EstimatedTokens())
    assert found.interrupted
    assert [o.trajectory.id for o in found.outcomes] == ["made-chat-4", "made-chat-5"]
    out = io.StringIO()
    found.print(Console(file=out, width=200))
    assert "interrupted after 2 trajectories" in out.getvalue()


def test_run_interrupted_at_once_still_reports(tmp_path: Path, hashing_encoder: Any) -> None:
    _save(conversation("chat", 4), tmp_path)

    def stop(moment: Moment) -> list[dict[str, Any]]:
        raise KeyboardInterrupt

    found = run(tmp_path, ["none", Scripted(stop)], encoder=hashing_encoder, counter=EstimatedTokens())
    data = found.to_json()
    assert data["interrupted"]
    assert data["methods"]["none"]["cost_ratio"] is None
    found.print(Console(file=io.StringIO(), width=80))


def test_bad_arguments(tmp_path: Path, hashing_encoder: Any) -> None:
    with pytest.raises(RequestError, match="no such file"):
        run(tmp_path / "absent", encoder=hashing_encoder)
    with pytest.raises(RequestError, match="no recorded trajectory"):
        run(tmp_path, encoder=hashing_encoder)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(RequestError, match=r"x\.json.*supported"):
        run(tmp_path, encoder=hashing_encoder)
    with pytest.raises(ConfigError, match="unknown method 'nothing'"):
        run(tmp_path, ["nothing"], encoder=hashing_encoder)
    _save(conversation("chat", 2), tmp_path)
    with pytest.raises(ConfigError, match="unique"):
        run(tmp_path, ["none", Scripted(lambda m: m.turn.messages, name="none")], encoder=hashing_encoder)
    with pytest.raises(ConfigError, match="delta"):
        run(tmp_path, delta=2, encoder=hashing_encoder)


# --- recorded runs


class ByteEncoder:
    """How often each byte occurs: a rough direction, in no time."""

    name = "bytes"
    dim = 64

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = np.zeros((len(texts), 256), np.float32)
        for row, text in zip(counts, texts, strict=True):
            row[:] = np.bincount(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8), minlength=256)
        folded = np.sqrt(counts.reshape(-1, 4, 64).sum(1))
        return folded / np.maximum(np.linalg.norm(folded, axis=1, keepdims=True), 1e-9)


@pytest.mark.data
@pytest.mark.parametrize("folder", ["openai", "native"])
def test_every_recorded_run_replays_without_an_invalid_request(data_dir: Path, folder: str) -> None:
    """Every file, the settings of delta in turn; every invariant at every request."""
    runs = load(data_dir / "trajectories" / folder).trajectories
    assert len(runs) >= 40
    for t, delta in zip(runs, itertools.cycle((0.05, 0.5, 1.0)), strict=False):
        names = ["paper", "cost-aware", *(["none", "clear-tool-results"] if delta == 1.0 else [])]
        outcome = _replay(methods_named(names, Prices(), delta), ByteEncoder()).run(t)
        assert outcome.requests > 0
        assert outcome.invalid_as_recorded == 0, t.id
        assert all(m.invalid == 0 and m.broken == [] for m in outcome.methods.values()), t.id
