"""The readers of signals on the worst texts that we know, in milliseconds for each 1,000 characters.

    python -m pytest bench/bench_signals.py --benchmark-enable

Each text is shaped against one reader; `worst` in the extra information names the slowest of its group. Target: 1 ms.
"""

import json
import time

import pytest

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import signals

CHARS = 40_000


def of(piece: str, chars: int = CHARS) -> str:
    return piece * (chars // len(piece))


SHELL = [
    of(p) for p in ("xargs ", "sudo ", "()", "a;", "cd ab;", ">a;", ">a ", "${", "(", "((", "$", "`", '"$("', "<(a)")
]
SHELL += [of(p) for p in ("eval eval eval a;", "bash -c 'a;b;c';", "python -c 'a;a;a;a';", "tar xf a;", "git add a;")]
SHELL += [
    of(p) for p in ("a=b ", "a=$a$a;", "<<a ", " \\\n", "#\n", "cat <<a\nb\na\n", "{a ", "a) b;;", "[[ a ]];", "\x0b")
]
SHELL += [
    of(p) for p in ("timeout 5 a;", "env a=b c;", "foo -o a;", "ssh a b;", "a|tee b;", "a/b ", "xargs find -exec ")
]
SHELL += [
    "find . " + of("-exec find -execdir find -ok find "),
    of("x='a b c'; eval $x; "),
    "x=" + of("ab", CHARS // 2) + "; eval " + of("$x ", CHARS // 2),
    f"y='{of('a;', CHARS // 4)}'; x='{of('eval $y; ', CHARS // 4)}'; " + of("eval $x;", CHARS // 4),
    "curl -" + of("O") + "1",
    "curl " + of("http://a?" + "a&" * 900 + " "),
    "a=" + "b" * 400 + ";c " + of("$a"),
    "for x in " + "b " * 16 + ";do " + of("rm $x;"),
    "".join(f"for a{i} in b;" for i in range(CHARS // 30)) + of("eval x;", CHARS // 2),
    "rm " + of("1:" * 190 + "x "),
    "rm " + of("a "),
    "rm " + of("../" * 130 + " "),
    "'" + of(" > a/b"),
    "cat <<a\n" + of("a "),
    "psql " + of("update a "),
    "git apply <<E\n" + of("+++ b/y\n") + "\nE",
]
PYTHON = [
    of(p) for p in ("a;", "f(x)\n", "1<2\n", "open('a')\n", "a='b'\n", "x=a+a+a+a\n", "if a:\n b\n", "f'{a}'\n", "\\")
]
PYTHON += [of(p) for p in ("!a\n", "%a\n", "get('http://a')\n", "os.system('a')\n", "(a," * 80 + "!\n", "Path(a)/b\n")]
PYTHON += [
    f"x='{of('a;', CHARS // 2)}'\n" + of("os.system(x)\n", CHARS // 2),
    of("x='a';", CHARS // 2) + of("x=x+x;", CHARS // 2),
    "a=[" + of("1,") + "]",
    "$" + of("open('a','w')"),
    "$ " + of("'a'  "),
    of("open(Path(Path(Path(a,a,a),Path(a,a,a)),Path(Path(a,a),a)))\n"),
]
RESULTS = [
    of(p) for p in ("error\n", "error: a\n", "1 failed ", "1 failed\n", "FAILED ", "AError\n", "A.A.A.A.A.AErrorx\n")
]
RESULTS += [
    of(p) for p in ("a: cannot write error\n", "Saved Saved to\n", "\x1b[", "return exit code ", "status ", "\r")
]
RESULTS += [
    of("error failed FAILED FAIL fatal ERROR HTTP status timed out not found annot \n"),
    of("[11:11:11 11:11 11:11 11:11 11 error FAILED failed in\n"),
    of("1 failed 1 failed 1 failed 1 failed in in in in in error at a a a a\n"),
    of("command process request tool timeou imed out Failed Failed to to failed to\n"),
    json.dumps({"exit_code": 1, "output": of("error ", CHARS // 3), "stderr": of("1 failed ", CHARS // 3)}),
]


def blocks(kind: str) -> list[BlockContent]:
    if kind == "results":
        made = [("make_x", "{}", text) for text in RESULTS] + [("read_file", '{"path": "a"}', text) for text in RESULTS]
    elif kind == "shell":
        made = [("bash", json.dumps({"command": text}), "") for text in SHELL]
    else:
        made = [("python", json.dumps({"code": text}), "") for text in PYTHON]
    return [BlockContent("", "", (ToolCall("1", n, a),), (ToolResult("1", r),)) for n, a, r in made]


@pytest.mark.parametrize("kind", ["shell", "python", "results"])
def test_milliseconds_for_each_kilobyte(benchmark, kind):
    worst: dict[str, float] = {}

    def once():
        for content in blocks(kind):
            call, result = content.calls[0], content.results[0]
            start = time.process_time()
            signals(content)
            rate = 1e6 * (time.process_time() - start) / (len(call.arguments) + len(result.text))
            name = (result.text or call.arguments)[:50]
            worst[name] = min(rate, worst.get(name, rate))

    benchmark.pedantic(once, rounds=3)
    name = max(worst, key=worst.__getitem__)
    benchmark.extra_info.update(worst=name, milliseconds=worst[name])
    print(f"\n{kind}: at most {worst[name]:.2f} ms for 1,000 characters ({name!r})")
