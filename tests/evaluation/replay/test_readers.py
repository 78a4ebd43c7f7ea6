"""Readers of recorded runs against the same runs in OpenAI form, and against damage."""

import contextlib
import copy
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from gemjax.errors import RequestError
from gemjax.evaluation.replay import load, read, requests
from gemjax.evaluation.replay.readers.conversation import seconds
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.history.blocks import validate

COVERED = {
    "anthropic-messages": "anthropic",
    "claude-code-jsonl": "anthropic",
    "cochise-events-jsonl": "chat",
    "codex-rollout-jsonl": "responses",
    "gemini-contents": "chat",
    "inspect-eval-json": "chat",
    "langgraph-thread": "chat",
    "mini-swe-agent-traj": "chat",
    "openhands-events": "chat",
    "pi-session-jsonl": "anthropic",
    "swe-agent-traj": "chat",
    "tau-bench": "chat",
    "tau2-bench": "chat",
}


@pytest.fixture(scope="module")
def recorded(data_dir: Path) -> Path:
    return data_dir / "trajectories"


@pytest.fixture(scope="module")
def index(recorded: Path) -> dict[str, int]:
    """Complete blocks by id, from the index of the recordings."""
    rows = re.findall(r"^\| ([^ |]+)[^|]*\|(?:[^|]*\|){4} (\d+)/\d+ \|", (recorded / "INDEX.md").read_text(), re.M)
    return {name: int(blocks) for name, blocks in rows}


@pytest.fixture(scope="module")
def native(recorded: Path) -> dict[str, list[Trajectory]]:
    return {str(p.name): read(p) for folder in COVERED for p in sorted((recorded / "native" / folder).iterdir())}


def _of(native: dict[str, list[Trajectory]], folder: str, recorded: Path) -> dict[str, list[Trajectory]]:
    return {p.name: native[p.name] for p in sorted((recorded / "native" / folder).iterdir())}


def _twin_blocks(path: Path) -> list[tuple[list[str], list[str]]]:
    """Tool names and sorted results of each complete block of an OpenAI-form file, by hand."""
    messages = json.loads(path.read_text())["messages"]
    blocks = []
    for i, message in enumerate(messages):
        calls = message.get("tool_calls") or []
        results = {}
        for follower in messages[i + 1 :]:
            if follower["role"] != "tool":
                break
            results[follower["tool_call_id"]] = follower["content"]
        if calls and len(results) == len(calls):
            blocks.append(([c["function"]["name"] for c in calls], sorted(results.values())))
    return blocks


def _our_blocks(t: Trajectory) -> list[tuple[list[str], list[str]]]:
    return [([c.name for c in b.content.calls], sorted(r.text for r in b.content.results)) for b in t.parsed.blocks]


@pytest.mark.data
def test_every_openai_file_is_read_with_its_blocks(recorded: Path, index: dict[str, int]) -> None:
    loaded = load(recorded / "openai")
    assert not loaded.skipped
    assert len(loaded.trajectories) == len(list((recorded / "openai").iterdir()))
    for t in loaded.trajectories:
        raw = json.loads(Path(t.source).read_text())
        assert (t.format, t.request_template) == ("chat", {})
        # Three recordings hold turns whose calls were cut off inside; see the test of its own.
        assert t.notes or t.messages == raw["messages"]
        assert t.goal == (raw["goal"] or None)
        expected = index.get(t.id)
        if t.id.startswith("cc-viewer-side"):
            expected = len(_twin_blocks(Path(t.source)))
        assert len(t.parsed.blocks) == expected, t.id


@pytest.mark.data
def test_turns_cut_off_inside_a_history_are_left_out(recorded: Path) -> None:
    cut = {t.id: t for t in load(recorded / "openai").trajectories if t.notes}
    assert set(cut) == {"pi-gjc-youtube-transcripts", "pi-mono-before-compaction"}
    for t in cut.values():
        raw = json.loads(Path(t.source).read_text())["messages"]
        assert validate(raw) != []
        assert validate(t.request()) == []
        kept = iter(raw)
        assert all(any(m == k for k in kept) for m in t.messages), "the same messages in order"
        gone = [m for m in raw if m not in t.messages]
        assert sum(bool(m.get("tool_calls")) for m in gone) == int(t.notes[0].split()[0])


@pytest.mark.data
def test_every_covered_native_file_is_read(recorded: Path, native: dict[str, list[Trajectory]]) -> None:
    for folder, wire in COVERED.items():
        for name, found in _of(native, folder, recorded).items():
            assert found, name
            for t in found:
                assert t.format == wire, name
                turns = list(requests(t))
                assert len(turns) > 0
                for turn in (turns[0], turns[len(turns) // 2], turns[-1]):
                    assert validate(turn.request, format=wire) == [], (t.id, turn.index)


@pytest.mark.data
def test_native_files_have_the_blocks_of_the_index(
    recorded: Path, native: dict[str, list[Trajectory]], index: dict[str, int]
) -> None:
    for folder in COVERED:
        if folder == "mini-swe-agent-traj":
            continue  # see the test of its own
        for name, found in _of(native, folder, recorded).items():
            main = [t for t in found if "#side" not in t.id]
            identity = re.sub(r"(\.traj)?\.jsonl?$|\.traj$", "", name)
            # By the ids of their calls: what pi keeps at a compaction stands in both parts.
            blocks = {
                (t.id if "pi-" not in name else "", *(c.id for c in b.content.calls), b.key)
                for t in main
                for b in t.parsed.blocks
            }
            assert len(blocks) == index[identity], name


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    [
        "cc-spotter-main-ae4a77f8.jsonl",
        "cc-yoavf-pomodoro.jsonl",
        "codex-yoavf-pomodoro.jsonl",
        "sweagent-ctf-web-i_got_id.traj",
        "swesmith-pandas-53652.traj",
        "swesmith-pydantic-8316.traj",
        "tau-airline-gpt4o-t002-r1.json",
        "tau-retail-assert-noids-t023-r23.json",
        "tau-retail-precond-t062-r62.json",
    ],
)
def test_blocks_match_the_openai_twin(recorded: Path, native: dict[str, list[Trajectory]], name: str) -> None:
    twin = recorded / "openai" / f"{name.rsplit('.', 1)[0]}.json"
    ours = [b for t in native[name] if "#side" not in t.id for b in _our_blocks(t)]
    theirs = _twin_blocks(twin)
    assert [b[0] for b in ours] == [b[0] for b in theirs]
    for (_, mine), (_, other) in zip(ours, theirs, strict=True):
        assert [_plain(m) for m in mine] == [_plain(o) for o in other]


def _plain(text: str) -> str:
    """The twins join the text parts of a result in a way of their own."""
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.data
def test_sidechains_are_trajectories_of_their_own(recorded: Path, native: dict[str, list[Trajectory]]) -> None:
    found = native["cc-viewer-main-fe5e1c67.jsonl"]
    sides = {t.messages[0]["content"]: t for t in found if "#side" in t.id}
    assert len(sides) == 5
    for n in range(1, 5):
        twin = recorded / "openai" / f"cc-viewer-side{n}-fe5e1c67.json"
        first = json.loads(twin.read_text())["messages"][0]["content"]
        assert [b[0] for b in _our_blocks(sides[first])] == [b[0] for b in _twin_blocks(twin)]


@pytest.mark.data
def test_a_compaction_starts_a_new_trajectory(native: dict[str, list[Trajectory]]) -> None:
    before, after = native["cc-spotter-main-ae4a77f8.jsonl"]
    assert before.id + "#2" == after.id
    assert after.messages[0]["content"].startswith("This session is being continued")
    assert not any("This session is being continued" in json.dumps(m) for m in before.messages)


@pytest.mark.data
def test_mini_swe_agent_calls_are_the_actions_that_were_executed(
    recorded: Path, native: dict[str, list[Trajectory]], index: dict[str, int]
) -> None:
    """The environment is the oracle: it answers an executed action with its output, anything else with a complaint.

    The OpenAI twins pair the fences of some turns wrongly and so miss calls that were executed (see docs/replay.md).
    """
    for name, (t,) in _of(native, "mini-swe-agent-traj", recorded).items():
        rows = json.loads(Path(t.source).read_text())["messages"]
        complaints = sum("EXACTLY ONE action" in r["content"] for r in rows[2:] if r["role"] == "user")
        replies = sum(r["role"] == "user" for r in rows[2:])
        assert len(t.parsed.blocks) == replies - complaints, name
        assert len(t.parsed.blocks) >= index[name.removesuffix(".traj.json")]
        for block in t.parsed.blocks:
            command = json.loads(block.content.calls[0].arguments)["command"]
            assert f"```bash\n{command}\n```" in rows[block.messages[0]]["content"]


@pytest.mark.data
def test_text_protocols_say_so(native: dict[str, list[Trajectory]]) -> None:
    assert "synthesised" in native["miniswe-flask-5014.traj.json"][0].notes[0]
    assert "synthesised" in native["sweagent-ctf-web-i_got_id.traj"][0].notes[0]
    assert native["sweagent-fc-marshmallow-1867.traj"][0].notes == ()
    assert "without an id" in native["tau-retail-assert-noids-t023-r23.json"][0].notes[0]


@pytest.mark.data
def test_requests_grow_by_the_recordings_own_objects(native: dict[str, list[Trajectory]]) -> None:
    for name in ("codex-yoavf-pomodoro.jsonl", "anthropic-raw-gen-readme.json", "tau-airline-gpt4o-t002-r1.json"):
        (t,) = native[name]
        before = 0
        for turn in requests(t):
            assert turn.count > before
            assert all(a is b for a, b in zip(turn.messages, t.messages, strict=False))
            assert len(turn.messages) == turn.count
            assert all(b.messages[-1] < turn.count for b in turn.blocks)
            before = turn.count


@pytest.mark.data
def test_a_body_keeps_its_frame_and_is_itself_the_last_request(native: dict[str, list[Trajectory]]) -> None:
    (t,) = native["anthropic-raw-gen-readme.json"]
    raw = json.loads(Path(t.source).read_text())
    last = list(requests(t))[-1]
    assert last.request == raw
    assert last.next is None
    assert t.request_template["system"] == raw["system"]


LONG = re.compile(r"^\| ([^ |]+) \| [^|]+\|(?:[^|]*\|){4} (\d+) \| (\d+) \|", re.M)


@pytest.mark.data
def test_long_sessions_have_the_blocks_of_their_index(recorded: Path) -> None:
    loaded = load(recorded / "long")
    assert [Path(path).name for path, _ in loaded.skipped if "licenses" not in path] == ["INDEX.md"]
    parts: dict[str, list[Trajectory]] = {}
    for t in loaded.trajectories:
        parts.setdefault(Path(t.source).name, []).append(t)
    rows = {Path(name).name: int(blocks) for name, _, blocks in LONG.findall((recorded / "long/INDEX.md").read_text())}
    assert set(rows) == set(parts)
    for name, found in parts.items():
        assert not any(t.parsed.problems for t in found), name
        assert all(len(t.times) in (0, len(t.messages)) for t in found)
        if name.startswith("miniswe"):
            continue  # the index counts fences by position; see the test of the calls that were executed
        # One session and one run end with a call that waits for its result, which the index counts.
        open_end = name in ("cc-cli-session-end-hooks.jsonl", "cc-gitsync-simplify-goal.jsonl")
        open_end |= name == "codex-gitsync-readme-media.jsonl"
        assert sum(map(answered_turns, found)) == rows[name] - open_end, name


def answered_turns(t: Trajectory) -> int:
    """Turns with all of their results, those that must stay and those that go with another's reasoning included."""
    views = [record.view for record in t.parsed.records]
    complete = [e for e in t.wire.exchanges(views)[0] if e.complete]
    again = [views[a].role == "result" and views[b].model for e in complete for a, b in itertools.pairwise(e.members)]
    return len(complete) + sum(again)


@pytest.mark.data
def test_requests_have_times_where_the_recording_has(recorded: Path) -> None:
    for name in ("cc-gitsync-sha256.jsonl", "codex-gitsync-bitmaps.jsonl", "opencode-nimbus-worker.json"):
        turns = list(requests(read(recorded / "long" / name)[0]))
        times = [turn.time for turn in turns if turn.time is not None]
        assert len(times) == len(turns)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert max(gaps) > 300, "each has a pause of more than five minutes"
        assert min(gaps) > -60
    (t,) = read(recorded / "long" / "miniswe-sympy-19040.traj.json")
    assert all(turn.time is None for turn in requests(t))


@pytest.mark.data
def test_damaged_recordings_are_reported_never_raised(recorded: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    junk = (None, 3, [], {}, "x", [None], {"type": 1}, True)
    native = [min((recorded / "native" / f).iterdir(), key=lambda p: p.stat().st_size) for f in COVERED]
    long = [recorded / "long" / "opencode-nimbus-worker.json", recorded / "long/extra/gemini-sessionbridge-short.json"]
    for source in (*native, *long):
        original = _parsed(source)
        for n in range(25):
            data = copy.deepcopy(original)
            for _ in range(rng.randint(1, 6)):
                _damage(data, rng, junk)
            body = "\n".join(map(json.dumps, data)) if source.suffix == ".jsonl" else json.dumps(data)
            (tmp_path / f"{source.stem}-{n}{source.suffix}").write_text(body)
    loaded = load(tmp_path)
    assert len({t.source for t in loaded.trajectories}) + len(loaded.skipped) == 25 * (len(COVERED) + 2)
    assert loaded.trajectories
    for t in loaded.trajectories:
        for turn in requests(t):
            validate(turn.request)


def _parsed(source: Path) -> Any:
    """The recording, long ones cut to a few messages."""
    if source.suffix == ".jsonl":
        rows = []
        for row in source.read_text().split("\n")[:60]:
            with contextlib.suppress(ValueError):  # one recording has a damaged line of its own
                rows.append(json.loads(row))
        return rows
    data = json.loads(source.read_text())
    if isinstance(data, dict) and "sessionID" in str(data)[:3000]:
        data["messages"] = data["messages"][:8]
    return data


def _damage(data: object, rng: random.Random, junk: tuple[object, ...]) -> None:
    """Replace one value somewhere inside."""
    node = data
    for _ in range(rng.randint(1, 6)):
        if isinstance(node, list) and node:
            key: object = rng.randrange(len(node))
        elif isinstance(node, dict) and node:
            key = rng.choice(list(node))
        else:
            return
        child = node[key]  # type: ignore[index]
        if not isinstance(child, list | dict) or not child or rng.random() < 0.3:
            node[key] = copy.deepcopy(rng.choice(junk))  # type: ignore[index]
            return
        node = child


USER = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "r"},
]
ITEMS = [
    {"type": "message", "role": "user", "content": "hello"},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "1"},
    {"type": "function_call_output", "call_id": "b", "output": "2"},
    {"type": "message", "role": "assistant", "content": "done"},
]


def _write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_a_cut_off_turn_goes_and_one_in_flight_stays(tmp_path: Path) -> None:
    again = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "c2"}]}
    flying = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "c3"}]}
    (t,) = read(_write(tmp_path / "cut.json", [*CHAT, again, USER, flying]))
    assert t.messages == [*CHAT, USER, flying]
    assert t.notes == ("1 turn without all results left out, as no provider accepts them",)
    (whole,) = read(_write(tmp_path / "flying.json", [*CHAT, USER, flying]))
    assert whole.notes == ()
    # Nothing else is repaired: an orphan stays, and with it the report that the recording is invalid.
    (orphan,) = read(_write(tmp_path / "orphan.json", [USER, CHAT[2], USER]))
    assert orphan.messages == [USER, CHAT[2], USER]


def test_bare_lists_and_bodies_of_each_format(tmp_path: Path) -> None:
    cases = {
        "chat-list": (CHAT, "chat", 1, False),
        "chat-body": ({"model": "m", "messages": CHAT}, "chat", 2, True),
        "items": (ITEMS, "responses", 2, False),
        "items-body": ({"model": "m", "instructions": "do", "input": ITEMS[:6]}, "responses", 2, True),
        "anthropic": ({"system": "s", "messages": [USER]}, "anthropic", 1, True),
        "record": ({"source": {}, "domain": "d", "goal": "g", "messages": CHAT}, "chat", 1, False),
    }
    for name, (value, wire, count, pending) in cases.items():
        (t,) = read(_write(tmp_path / f"{name}.json", value))
        assert (t.id, t.format, t.pending) == (name, wire, pending)
        assert len(list(requests(t))) == count, name
    assert read(tmp_path / "record.json")[0].goal == "g"


def test_a_responses_turn_is_one_request(tmp_path: Path) -> None:
    (t,) = read(_write(tmp_path / "items.json", ITEMS))
    first, second = requests(t)
    assert (first.count, second.count) == (1, 6)
    assert first.next is not None
    assert [c.name for c in first.next.calls] == ["f", "g"]
    assert first.next.results == ()
    assert second.next is None
    assert len(second.blocks) == 1


def test_jsonl_of_messages_and_of_bodies(tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text("\n".join(map(json.dumps, CHAT)) + "\nnot json\n")
    (t,) = read(one)
    assert t.messages == CHAT
    assert t.notes == ("1 line that are not JSON left out",)
    many = tmp_path / "many.jsonl"
    many.write_text("\n".join(json.dumps({"messages": CHAT, "n": n}) for n in range(3)))
    assert [t.id for t in read(many)] == ["many#1", "many#2", "many#3"]


def test_line_separators_inside_strings_do_not_cut_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"role": "user", "content": "a\u2028b\x85c"}, {"role": "assistant", "content": "d"}]
    path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in rows), encoding="utf-8")
    assert read(path)[0].messages == rows


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"hello there", "not JSON"),
        (b"[]", "not a recording"),
        (b"{}", "not a recording"),
        (b"3", "not a recording"),
        (b'{"messages": []}', "not a recording"),
        (b'{"messages": [1, 2]}', "not a recording"),
        (b'[{"a": 1}]', "not a recording"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_unreadable_files_have_a_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    _write(tmp_path / "good.json", CHAT)
    loaded = load(tmp_path)
    assert [t.id for t in loaded.trajectories] == ["good"]
    ((path, why),) = loaded.skipped
    assert path.endswith("bad.json")
    assert reason in why
    assert "\n" not in why


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file or folder"):
        load(tmp_path / "nowhere")


def test_same_names_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        _write(tmp_path / folder / "run.json", CHAT)
    assert [t.id for t in load(tmp_path).trajectories] == ["a/run", "b/run"]
    twice = load([tmp_path / "a", tmp_path / "a" / "run.json"])
    assert len(twice.trajectories) == 1


def test_hidden_files_are_passed_over(tmp_path: Path) -> None:
    _write(tmp_path / ".hidden.json", CHAT)
    _write(tmp_path / "seen.json", CHAT)
    loaded = load(tmp_path)
    assert [t.id for t in loaded.trajectories] == ["seen"]
    assert loaded.skipped == []


def _row(uuid: str, parent: str | None, kind: str, content: object, **more: object) -> dict[str, object]:
    message = {"role": kind, "content": content, **({"id": more.pop("id")} if "id" in more else {})}
    return {"uuid": uuid, "parentUuid": parent, "type": kind, "message": message, **more}


def test_claude_code_abandoned_branch_is_left_out(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    use2 = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}
    rows = [
        _row("u1", None, "user", "first"),
        _row("a1", "u1", "assistant", [{"type": "text", "text": "old answer"}], id="m1"),
        _row("u2", "u1", "user", "edited"),
        _row("a2", "u2", "assistant", [use], id="m2"),
        _row("r1", "a2", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "one"}]),
        _row("a3", "a2", "assistant", [use2], id="m2"),
        _row("r2", "a3", "user", [{"type": "tool_result", "tool_use_id": "t2", "content": "two"}]),
        _row("e1", "r2", "assistant", [{"type": "text", "text": "API Error"}], id="m9", isApiErrorMessage=True),
        _row("a4", "e1", "assistant", [{"type": "text", "text": "done"}], id="m3"),
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (t,) = read(path)
    assert [m["role"] for m in t.messages] == ["user", "user", "assistant", "user", "assistant"]
    assert t.messages[2]["content"] == [use, use2]
    assert [p["content"] for p in t.messages[3]["content"]] == ["one", "two"]
    assert validate(t.request()) == []
    assert any("1 row of abandoned branches" in note for note in t.notes)


def test_claude_code_results_written_before_their_calls_are_paired(tmp_path: Path) -> None:
    """The program writes a call and its result at the same time, in either order."""
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
    rows = [
        _row("a", None, "user", "hello"),
        _row("b", "a", "assistant", [{"type": "text", "text": "I read"}], id="m1"),
        _row("d", "c", "user", [result]),
        _row("c", "b", "assistant", [call], id="m1"),
        _row("e", "d", "assistant", [{"type": "text", "text": "done"}], id="m2"),
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(json.dumps({**r, "timestamp": f"2026-01-01T00:00:0{n}Z"}) for n, r in enumerate(rows)))
    (t,) = read(path)
    assert [m["role"] for m in t.messages] == ["user", "assistant", "user", "assistant"]
    assert t.messages[2]["content"] == [result]
    assert len(t.parsed.blocks) == 1 and not t.parsed.problems
    assert [time - t.times[0] for time in t.times] == [0, 1, 2, 4]
    assert not any("left out" in note for note in t.notes)


def test_codex_late_results_go_behind_their_turn(tmp_path: Path) -> None:
    late = [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "message", "role": "assistant", "content": "waiting"},
        {"type": "message", "role": "user", "content": "and?"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "message", "role": "assistant", "content": "done"},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps({"type": "response_item", "payload": item}) for item in late))
    (t,) = read(path)
    assert t.messages == [late[i] for i in (0, 1, 2, 3, 6, 4, 5, 7)]
    assert not t.parsed.problems and len(t.parsed.blocks) == 1


def test_gemini_sessions_and_exports_are_the_same_conversation(tmp_path: Path) -> None:
    call = {"id": "c1", "name": "ls", "args": {"path": "."}}
    answer = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.txt"}}}
    user = {"type": "user", "content": [{"text": "list"}], "timestamp": "2026-01-01T00:00:00Z"}
    end = {"type": "gemini", "content": "done", "timestamp": "2026-01-01T00:00:09Z"}
    kept = {"type": "gemini", "content": "", "toolCalls": [{**call, "result": [answer]}]}
    made = {"type": "gemini", "content": [{"functionCall": call, "thoughtSignature": "sig"}]}
    notice = {"type": "info", "content": "Request cancelled."}
    session = {"sessionId": "s", "messages": [user, kept, notice, end]}
    again = {"type": "user", "content": [answer]}
    export = {"sessionId": "s", "messages": [user, made, again, again, again, end]}
    (a,), (b,) = read(_write(tmp_path / "a.json", session)), read(_write(tmp_path / "b.json", export))
    assert b.messages[1]["tool_calls"][0].pop("extra_content") == {"google": {"thought_signature": "sig"}}
    assert a.messages == b.messages
    assert [m["role"] for m in a.messages] == ["user", "assistant", "tool", "assistant"]
    assert a.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
    assert any("2 repeated results" in note for note in b.notes)


def test_opencode_steps_are_turns_and_lost_ids_are_made(tmp_path: Path) -> None:
    def tool(identity: str, output: str) -> dict[str, object]:
        state = {"status": "completed", "input": {"n": 1}, "output": output, "time": {"end": 1_700_000_005_000}}
        return {"type": "tool", "callID": identity, "tool": "read", "state": state}

    running = {"type": "tool", "callID": "x", "tool": "read", "state": {"status": "running", "input": {}}}
    parts = [{"type": "step-start"}, tool("REDACTED", "one"), tool("REDACTED", "two"), {"type": "step-finish"}]
    parts += [{"type": "step-start"}, {"type": "text", "text": "more"}, running]
    messages = [
        {"info": {"role": "user", "time": {"created": 1_700_000_000_000}}, "parts": [{"type": "text", "text": "go"}]},
        {"info": {"role": "assistant", "modelID": "m"}, "parts": parts},
    ]
    (t,) = read(_write(tmp_path / "o.json", {"info": {"id": "s"}, "messages": messages}))
    assert [m["role"] for m in t.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m["content"] for m in t.messages[2:4]] == ["one", "two"]
    assert len({c["id"] for m in t.messages for c in m.get("tool_calls", ())}) == 3
    assert t.times == (1_700_000_000.0, None, 1_700_000_005.0, 1_700_000_005.0, None)
    assert t.request_template == {"model": "m"}


def test_pi_keeps_signed_thinking_and_follows_the_branch(tmp_path: Path) -> None:
    def row(identity: str, parent: str, **message: object) -> dict[str, object]:
        return {"type": "message", "id": identity, "parentId": parent, "message": message}

    signed = {"type": "thinking", "thinking": "hm", "thinkingSignature": "s1"}
    unsigned = {"type": "thinking", "thinking": "aloud", "thinkingSignature": ""}
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a"}}
    rows = [
        row("1", "0", role="user", content=[{"type": "text", "text": "go"}]),
        row("2", "1", role="user", content="abandoned"),
        row("3", "1", role="assistant", content=[signed, unsigned, call], api="anthropic-messages", model="m"),
        row("4", "3", role="toolResult", toolCallId="c", content=[{"type": "text", "text": "r"}], isError=True),
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (t,) = read(path)
    assert t.format == "anthropic"
    assert [m["role"] for m in t.messages] == ["user", "assistant", "user"]
    assert t.messages[1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "s1"}
    assert t.messages[1]["content"][1] == {"type": "text", "text": "aloud"}
    assert t.messages[2]["content"][0]["is_error"] is True
    assert not t.parsed.problems


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T00:00:00.500Z", 1767225600.5),
        ("2026-01-01T00:00:00", 1767225600.0),
        (1767225600500, 1767225600.5),
        (1767225600, 1767225600.0),
        ("soon", None),
        (None, None),
        (True, None),
        (-3, None),
    ],
)
def test_recorded_times(value: object, expected: float | None) -> None:
    assert seconds(value) == expected


def test_codex_compaction_and_old_style(tmp_path: Path) -> None:
    def item(payload: dict[str, object]) -> str:
        return json.dumps({"type": "response_item", "payload": payload})

    summary = {"type": "compacted", "payload": {"message": "what happened so far"}}
    path = tmp_path / "rollout.jsonl"
    path.write_text("\n".join([*map(item, ITEMS), json.dumps(summary), *map(item, ITEMS[1:])]))
    before, after = read(path)
    assert before.messages == ITEMS
    assert after.messages[0] == ITEMS[0]
    assert after.messages[1]["content"][0]["text"] == "what happened so far"
    old = tmp_path / "old.jsonl"
    old.write_text("\n".join(map(json.dumps, [{"id": "x", "instructions": "be brief"}, *ITEMS])))
    (t,) = read(old)
    assert t.request_template == {"instructions": "be brief"}
    assert t.messages == ITEMS
