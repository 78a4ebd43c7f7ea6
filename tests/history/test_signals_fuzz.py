"""Signals never raise, are deterministic and take linear time, whatever an agent sends."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import BlockSignals, signals
from gemjax.history.signals.errors import MAX_REASON, error_in
from gemjax.history.signals.tools import effects_of

PIECES = [
    *("rm", "-rf", "/", ";", "&&", "||", "|", ">", ">>", "2>&1", ">&", "<<EOF", "<<-'E'", "EOF", "\n", "'", '"', "`"),
    *("$(", ")", "$((", "))", "[[", "]]", "{", "}", "#", "\\", "$x", "${x}", "&", "*", "?", "~", "/dev/null", "a/b.py"),
    *(
        "cd",
        "sudo",
        "env",
        "A=1",
        "bash",
        "-c",
        "python3",
        "-",
        "-m",
        "sed",
        "-i",
        "tee",
        "xargs",
        "find",
        "-exec",
        "+",
    ),
    *("git", "commit", "checkout", "--", "apply", "patch", "curl", "-o", "wget", "-O-", "for", "f", "in", "do", "done"),
    *("open('a','w')", "Path(x).write_text", "Traceback (most recent call last):", "Error:", "\x00", "\ud800", "Exit"),
    *("code: 1", "HTTP/1.1 404", '{"error":', "[1,", '"é"', "\u2028", "\U0001f600", "\x1b[31m", "FAILED", "3 failed"),
    *("<returncode>2</returncode>", "%%bash", "!ls", "*** Begin Patch\n", "*** Update File: x.py\n", "+++ b/y\n"),
    *("https://x.org/a?b#c", "www.", "s/a/b/", "--output=x", "tar", "xzf", "node", "-e", "../x", " ", "=>", "->"),
]
text = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.text(st.sampled_from("'\"`$(){}[]<>|&;\\\n \tab/.*#-="), max_size=120),
)
NAMES = ["Bash", "shell", "execute_bash", "python", "run_ipython", "str_replace_editor", "Write", "apply_patch", "Read"]
NAMES += ["Grep", "web_search", "WebFetch", "browser", "update_order", "get_x", "mcp__a__send_mail", "think", "submit"]
names = st.sampled_from(NAMES) | st.text(max_size=12)
scalars = st.one_of(text, st.integers(), st.booleans(), st.none(), st.floats())
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)
FIELDS = [
    "command",
    "cmd",
    "code",
    "path",
    "file_path",
    "paths",
    "url",
    "query",
    "edits",
    "input",
    "workdir",
    "language",
]
field_names = st.sampled_from(FIELDS)
objects = st.dictionaries(field_names | st.sampled_from(["order_id", "to", "x", ""]), values, max_size=5)
arguments = st.one_of(text, objects.map(json.dumps), objects.map(repr), values.map(json.dumps))
calls = st.builds(ToolCall, st.sampled_from(["1", "2", ""]), names, arguments)
results = st.builds(
    ToolResult, st.sampled_from(["1", "2", ""]), st.one_of(text, objects.map(json.dumps)), st.booleans()
)
blocks = st.builds(
    BlockContent, text, text, st.lists(calls, max_size=3).map(tuple), st.lists(results, max_size=3).map(tuple)
)


def check(found: BlockSignals) -> None:
    assert found.mutates is bool(found.writes)
    assert set(found.writes) <= set(found.touches)
    for names_ in (found.writes, found.touches, found.sources):
        assert len(set(names_)) == len(names_) and all(n and n.isprintable() for n in names_)
    if found.error is not None:
        assert 0 < len(found.error) <= MAX_REASON and found.error.isprintable()


@settings(max_examples=150, deadline=None)
@given(blocks)
def test_any_block_has_signals(content):
    found = signals(content)
    check(found)
    assert found == signals(content)


@settings(max_examples=300, deadline=None)
@given(calls, text)
def test_the_analysis_of_a_call_needs_no_net_under_it(call, output):
    """`signals` catches what a defect raises; here nothing does."""
    effects_of(call, output)


@settings(max_examples=200, deadline=None)
@given(text, st.booleans(), st.booleans(), st.booleans())
def test_any_text_is_read_for_errors(output, quotes, no_match, is_error):
    reason = error_in(output, quotes=quotes, no_match=no_match, is_error=is_error)
    assert reason is None or (reason.isprintable() and len(reason) <= MAX_REASON)
    if is_error:
        assert reason is not None


BIG = 10_000_000
HOSTILE = {
    "quotes": "'" * BIG,
    "double quotes": '"' * BIG,
    "open parentheses": "(" * BIG,
    "substitutions": "$(" * (BIG // 2),
    "arithmetic": "$((" * (BIG // 3),
    "backquotes": "`" * BIG,
    "here-documents": "<<A " * (BIG // 4),
    "here-document that never ends": "cat <<E > x\n" + "E " * (BIG // 2),
    "redirections": "> a " * (BIG // 4),
    "digits": "1" * BIG,
    "dashes": "sed -i" + "i" * BIG,
    "one word": "a" * BIG,
    "words": "a/b.py " * (BIG // 7),
    "lines": "error\n" * (BIG // 6),
    "paths": ("/" + "a" * 100) * (BIG // 101),
    "spaces": " " * BIG,
    "nested objects": '{"a":' * (BIG // 5),
    "nested lists": "[" * BIG,
    "failed": "failed " * (BIG // 7),
    "numbers of failures": "1 failed " * (BIG // 9),
    "colons": "a: " * (BIG // 3),
    "surrogates and NULs": "\ud800\x00" * (BIG // 2),
    "patch": "*** Update File: a.py\n" * (BIG // 22),
    "unified diff": "+++ b/a.py\n" * (BIG // 11),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_ten_megabytes(kind):
    """As a shell command, as Python, as a patch, as free text and as a result. Quadratic time would not end."""
    payload = HOSTILE[kind]
    as_field = json.dumps({"command": payload})
    made = [
        (ToolCall("1", "bash", as_field), "ok"),
        (ToolCall("1", "python", json.dumps({"code": payload})), "ok"),
        (ToolCall("1", "apply_patch", payload), "ok"),
        (ToolCall("1", "make_x", payload), payload),
    ]
    for call, output in made:
        check(signals(BlockContent("", "", (call,), (ToolResult("1", output),))))


def test_many_calls_and_many_names_are_bounded():
    paths = [f"d/{i}.py" for i in range(300)]
    one = ToolCall("1", "bash", json.dumps({"command": "rm " + " ".join(paths)}))
    found = signals(BlockContent("", "", (one,) * 260, (ToolResult("1", "x"),) * 260))
    assert 0 < len(found.writes) <= 64
    many = ToolCall("1", "Write", json.dumps({"files": paths}))
    assert len(signals(BlockContent("", "", (many,), ())).writes) <= 64


def test_a_block_without_calls_or_results_has_no_signals():
    assert signals(BlockContent("r", "t", (), ())) == BlockSignals()
    pending = BlockContent("", "", (ToolCall("1", "Write", '{"file_path": "a.py"}'),), ())
    assert signals(pending).writes == ("a.py",)
