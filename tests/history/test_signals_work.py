"""Whatever a text says, reading it takes bounded work: counted in calls and in bytes, not in seconds."""

import json
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import BlockSignals, RequestWork, signals

CALLS, CALLS_PER_CHAR = 20_000, 8
"""Most calls of functions (Python's and C's) that reading a block may take, and more for each of its characters."""


def block(tool: str, argument: str, output: str = "") -> BlockContent:
    results = (ToolResult("1", output),) if output else ()
    return BlockContent("", "", (ToolCall("1", tool, argument),), results)


def shell(script: str) -> BlockContent:
    return block("bash", json.dumps({"command": script}))


def code(text: str) -> BlockContent:
    return block("python", json.dumps({"code": text}))


def chars(content: BlockContent) -> int:
    return sum(len(c.arguments) for c in content.calls) + sum(len(r.text) for r in content.results)


def counted(content: BlockContent) -> tuple[BlockSignals, int]:
    """The signals of a block, and how many calls they took: the interpreter counts, not the code under test."""
    count = 0

    def on_event(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        found = signals(content)
    finally:
        sys.setprofile(None)
    return found, count


def check(content: BlockContent) -> BlockSignals:
    found, count = counted(content)
    assert count <= CALLS + CALLS_PER_CHAR * chars(content), (count, chars(content))
    if found.unknown:
        assert found == BlockSignals(unknown=True)
    return found


BIG = 40_000
KNOWN = {
    "find that runs find": shell("find . " + "-exec find -execdir find -ok find " * 30),
    "eval of a variable": shell("x='a b;c'; eval $x; " * (BIG // 20)),
    "eval of a long variable": shell("x=" + "ab " * (BIG // 6) + "; eval " + "$x " * (BIG // 6)),
    "eval of a script with evals": shell(f"y='{'a;' * 5000}'; x='{'eval $y;' * 1000}'; " + "eval $x;" * 1000),
    "os.system of one script": code(f"x='{'a;' * 5000}'\n" + "os.system(x)\n" * 1500),
    "statements of one letter": code("a;" * (BIG // 2)),
    "options of curl": shell("curl -" + "O" * BIG + "1"),
    "open braces": shell("${" * (BIG // 2)),
    "one brace closes": shell("${" * (BIG // 2) + "}"),
    "directories in directories": shell("cd abc;" * (BIG // 7)),
    "xargs of xargs": shell("xargs " * (BIG // 6)),
    "many loops, many scripts": shell("".join(f"for a{i} in b;" for i in range(1500)) + "eval x;" * 1500),
    "positions": shell("rm " + ("1:" * 190 + "x ") * (BIG // 400)),
    "subshells": shell("()" * (BIG // 2)),
    "bash in bash": shell("bash -c \"bash -c 'a;b;c;d'\";" * (BIG // 30)),
    "a variable that is long in many words": shell("a=" + "b" * 400 + ";c " + "$a" * (BIG // 2)),
    "lines that nearly match": block("make", "{}", "1 error at a a a a a a in 1 failed FAILED error\n" * (BIG // 48)),
    "exceptions that are none": block("make", "{}", "A.A.A.A.A.A.AErrorx\n" * (BIG // 20)),
    "fields": block("update_x", json.dumps({f"id{i}": 1 for i in range(BIG // 10)})),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_known_bad_texts(kind):
    check(KNOWN[kind])


def test_a_spent_block_is_unknown_and_its_neighbours_are_not():
    assert signals(KNOWN["eval of a script with evals"]) == BlockSignals(unknown=True)
    assert signals(shell("rm a.py")).writes == ("a.py",) and not signals(shell("rm a.py")).unknown


def test_the_words_of_eval_are_never_joined_beyond_what_is_paid_for():
    content = shell("x='" + "ab " * 30_000 + "'; eval " + "$x " * 30_000)
    tracemalloc.start()
    try:
        assert signals(content).unknown
        assert tracemalloc.get_traced_memory()[1] < 40 * chars(content)
    finally:
        tracemalloc.stop()


def test_the_blocks_of_a_request_share_an_account():
    request = RequestWork(200_000)
    found = [signals(shell("rm a.py; " * 100), request) for _ in range(50)]
    assert not found[0].unknown and found[-1].unknown and request.left >= 0
    assert [f.unknown for f in found] == sorted(f.unknown for f in found)
    assert {f.writes for f in found if not f.unknown} == {("a.py",)}
    fresh = RequestWork()
    signals(shell("rm a.py"), fresh)
    assert fresh.left < RequestWork().left


def test_find_runs_what_stands_between_exec_and_its_end():
    found = signals(shell(r"find . -name '*.py' -exec sed -i s/a/b/ x.py \; -o -exec touch y.py +"))
    assert found.writes == ("x.py", "y.py")


# What nests, repeats or stands for more than it says, in every combination.
LEAVES = ["a", "a/b.py", "$x", "$y", "rm a", "cd d", "1:1:1", "> f", "http://a?b&c", "-OO1", "${", "\\", "é", "{}"]
SHELL_WRAPS = ["eval {}", "$({})", "({})", "x='{}'", "y={}", "bash -c '{}'", "find -exec {}", "xargs {}", "sudo {}"]
SHELL_WRAPS += [
    "for x in {}; do eval $x; done",
    'python -c "{}"',
    "cat <<E\n{}\nE\n",
    '"{}"',
    "`{}`",
    "os.system('{}')",
]
CODE_WRAPS = [
    "x='{}'",
    "os.system(x)\n{}",
    "Path({})",
    "open({})",
    "f'{}'",
    "[{}]",
    "({}+x)",
    "!{}",
    "x={}\n",
    "x=x+x\n{}",
]
ERROR_WRAPS = ["error: {}", "1 failed {}", "Traceback {}", "FAILED {}", "a: cannot {}", "{}\n", "HTTP 4{}", "[{}]"]


@st.composite
def hostile(draw, wraps):
    text = "".join(draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=6)))
    for _ in range(draw(st.integers(1, 9))):
        piece = draw(st.sampled_from(wraps)).replace("{}", text)
        between = draw(st.sampled_from(["", " ", ";", "\n", "'", '"']))
        text = (piece + between) * draw(st.sampled_from([1, 1, 2, 3, 40]))
        if len(text) > 4_000:
            return text[:4_000]
    return text * draw(st.sampled_from([1, 4_000 // len(text) + 1]))


@settings(max_examples=60, deadline=None)
@given(hostile(SHELL_WRAPS), hostile(CODE_WRAPS), hostile(ERROR_WRAPS))
def test_work_is_bounded_by_length(script, text, output):
    check(shell(script))
    check(code(text))
    check(block("make", "{}", output))
    check(block("update_order", text, script))
