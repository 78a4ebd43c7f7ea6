"""Makes `agent_history.json`: a scripted agent repairs a small log-report tool, and every command really runs.

    python docs/examples/make_agent_history.py

The words and the calls are scripted; the results are what the commands printed, in a fresh folder that the history calls
/workspace. Timings differ from run to run, so the file is committed and not rebuilt.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TASK = """The log report in this folder is wrong: yesterday's report counts far fewer errors than there were, and it \
crashes on some files. Find the faults, fix them with a test for each, and add a --json option. Do not change the format \
of the text report: other scripts read it. Keep a short list of what you changed in CHANGES.md."""

SYSTEM = """You are a careful programmer with a shell in /workspace. Read before you write, run the tests after each \
change, and never delete user data under samples/."""

TOOLS = {
    "bash": {"command": "string"},
    "read_file": {"path": "string"},
    "write_file": {"path": "string", "content": "string"},
    "edit_file": {"path": "string", "old": "string", "new": "string"},
}

PROJECT = {
    "README.md": """# logreport

Counts log lines by level and lists the slowest requests.

    python -m logreport samples/app.log

A line is `TIMESTAMP LEVEL [component] message`, where LEVEL is DEBUG, INFO, WARN, ERROR or FATAL. FATAL counts as an error.
Request lines end in `took=<n>ms`.
""",
    "logreport/__init__.py": "",
    "logreport/__main__.py": "from logreport.cli import main\n\nraise SystemExit(main())\n",
    "logreport/parser.py": """import re

LINE = re.compile(r"(\\S+) (INFO|WARN|ERROR) \\[(\\w+)\\] (.*)")
TOOK = re.compile(r"took=(\\d+)ms$")


def parse_line(line):
    match = LINE.match(line)
    if not match:
        return None
    stamp, level, component, message = match.groups()
    took = TOOK.search(message)
    return {
        "stamp": stamp,
        "level": level,
        "component": component,
        "message": message,
        "took": int(took.group(1)) if took else None,
    }


def parse_file(path):
    with open(path) as handle:
        for line in handle:
            record = parse_line(line)
            if record:
                yield record
""",
    "logreport/report.py": """from collections import Counter


def summarise(records, slowest=3):
    counts = Counter()
    slow = []
    for record in records:
        counts[record["level"]] += 1
        if record["took"]:
            slow.append((record["took"], record["component"], record["message"]))
    slow.sort()
    return {"counts": dict(counts), "errors": counts["ERROR"], "slowest": slow[:slowest]}


def render(summary):
    lines = ["level    count"]
    for level, count in sorted(summary["counts"].items()):
        lines.append(f"{level:8} {count:5}")
    lines.append(f"errors   {summary['errors']:5}")
    lines.append("slowest requests")
    for took, component, message in summary["slowest"]:
        lines.append(f"{took:6}ms {component:10} {message}")
    return "\\n".join(lines)
""",
    "logreport/cli.py": """import argparse

from logreport.parser import parse_file
from logreport.report import render, summarise


def main(argv=None):
    parser = argparse.ArgumentParser(prog="logreport")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args(argv)
    for path in arguments.files:
        print(render(summarise(parse_file(path))))
    return 0
""",
    "tests/__init__.py": "",
    "tests/test_parser.py": """import unittest

from logreport.parser import parse_line


class ParserTest(unittest.TestCase):
    def test_reads_a_line(self):
        record = parse_line("2026-11-02T10:00:00Z ERROR [db] connection lost")
        self.assertEqual(record["level"], "ERROR")
        self.assertEqual(record["component"], "db")

    def test_ignores_what_is_no_log_line(self):
        self.assertIsNone(parse_line("  File \\"app.py\\", line 3"))


if __name__ == "__main__":
    unittest.main()
""",
}


def samples() -> dict[str, bytes]:
    """Log files with the oddities that the tool stumbles over."""
    components = ["db", "web", "auth", "job-runner", "cache", "mail.out"]
    levels = ["INFO"] * 12 + ["DEBUG"] * 4 + ["WARN"] * 3 + ["ERROR"] * 2 + ["FATAL"]
    lines = []
    for i in range(420):
        level = levels[(i * 7 + i // 5) % len(levels)]
        component = components[(i * 5 + i // 9) % len(components)]
        stamp = f"2026-11-02T{8 + i // 60:02}:{i % 60:02}:{(i * 17) % 60:02}Z"
        message = f"request {1000 + i} took={(i * 37) % 900}ms" if level == "INFO" else f"step {i} reported a condition"
        lines.append(f"{stamp} {level} [{component}] {message}")
        if level == "FATAL":
            lines.append("Traceback (most recent call last):\n  File \"app.py\", line 12, in handle\nKeyError: 'user'")
    text = "\n".join(lines) + "\n"
    windows = "\r\n".join(lines[:60]) + "\r\n"
    latin = "2026-11-02T10:00:00Z ERROR [web] caf\xe9 unavailable took=12ms\n".encode("latin-1")
    return {
        "samples/app.log": text.encode(),
        "samples/windows.log": windows.encode(),
        "samples/latin.log": latin,
        "samples/empty.log": b"",
        "samples/notes.txt": b"Kept for the auditors. Do not delete.\n",
    }


NEW_PARSER = """import re

# A component is a word with dots and dashes in it: [job-runner], [mail.out].
LINE = re.compile(r"(\\S+) (DEBUG|INFO|WARN|ERROR|FATAL) \\[([\\w.-]+)\\] (.*)")
TOOK = re.compile(r"took=(\\d+)ms\\s*$")


def parse_line(line):
    match = LINE.match(line)
    if not match:
        return None
    stamp, level, component, message = match.groups()
    took = TOOK.search(message)
    return {
        "stamp": stamp,
        "level": level,
        "component": component,
        "message": message.rstrip(),
        "took": int(took.group(1)) if took else None,
    }


def parse_file(path):
    # Log files come from many machines; a byte that is no UTF-8 must not stop the report.
    with open(path, encoding="utf-8", errors="replace") as handle:
        for line in handle:
            record = parse_line(line)
            if record:
                yield record
"""

PARSER_TESTS = """import tempfile
import unittest
from pathlib import Path

from logreport.parser import parse_file, parse_line


class ParserTest(unittest.TestCase):
    def test_reads_a_line(self):
        record = parse_line("2026-11-02T10:00:00Z ERROR [db] connection lost")
        self.assertEqual(record["level"], "ERROR")
        self.assertEqual(record["component"], "db")

    def test_ignores_what_is_no_log_line(self):
        self.assertIsNone(parse_line("  File \\"app.py\\", line 3"))

    def test_knows_every_level(self):
        for level in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL"):
            self.assertEqual(parse_line(f"t {level} [db] x")["level"], level)

    def test_component_with_dash_or_dot(self):
        self.assertEqual(parse_line("t INFO [job-runner] x")["component"], "job-runner")
        self.assertEqual(parse_line("t INFO [mail.out] x")["component"], "mail.out")

    def test_windows_line_end(self):
        self.assertEqual(parse_line("t INFO [db] request took=5ms\\r\\n")["took"], 5)

    def test_bytes_that_are_no_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "latin.log"
            path.write_bytes("t ERROR [web] caf\\xe9\\n".encode("latin-1"))
            self.assertEqual(len(list(parse_file(path))), 1)


if __name__ == "__main__":
    unittest.main()
"""

REPORT_TESTS = """import unittest

from logreport.report import render, summarise


def record(level="INFO", took=None):
    return {"stamp": "t", "level": level, "component": "db", "message": "m", "took": took}


class ReportTest(unittest.TestCase):
    def test_fatal_counts_as_an_error(self):
        summary = summarise([record("ERROR"), record("FATAL"), record("INFO")])
        self.assertEqual(summary["errors"], 2)

    def test_slowest_come_first(self):
        summary = summarise([record(took=t) for t in (5, 900, 40, 300)])
        self.assertEqual([s[0] for s in summary["slowest"]], [900, 300, 40])

    def test_a_request_of_zero_milliseconds_is_a_request(self):
        self.assertEqual(len(summarise([record(took=0)])["slowest"]), 1)

    def test_text_report_keeps_its_format(self):
        text = render(summarise([record("ERROR"), record(took=7)]))
        self.assertEqual(text.splitlines()[0], "level    count")
        self.assertIn("errors       1", text)


if __name__ == "__main__":
    unittest.main()
"""

CLI = """import argparse
import json
import sys

from logreport.parser import parse_file
from logreport.report import render, summarise


def main(argv=None):
    parser = argparse.ArgumentParser(prog="logreport")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON object a file")
    arguments = parser.parse_args(argv)
    failed = False
    for path in arguments.files:
        try:
            summary = summarise(parse_file(path))
        except OSError as error:
            print(f"logreport: {path}: {error.strerror}", file=sys.stderr)
            failed = True
            continue
        if arguments.json:
            print(json.dumps({"file": path, **summary}))
        else:
            print(render(summary))
    return 1 if failed else 0
"""

CLI_TESTS = """import contextlib
import io
import json
import unittest

from logreport.cli import main


def run(*argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(argv))
    return status, out.getvalue(), err.getvalue()


class CliTest(unittest.TestCase):
    def test_json(self):
        status, out, _ = run("--json", "samples/app.log")
        self.assertEqual(status, 0)
        self.assertIn("errors", json.loads(out))

    def test_missing_file_is_one_line(self):
        status, _, err = run("samples/none.log")
        self.assertEqual(status, 1)
        self.assertEqual(err.count("\\n"), 1)

    def test_empty_file(self):
        status, out, _ = run("samples/empty.log")
        self.assertEqual(status, 0)
        self.assertIn("errors       0", out)


if __name__ == "__main__":
    unittest.main()
"""

CHANGES = """# Changes

- FATAL and DEBUG lines are read; FATAL counts as an error, as the README says.
- Components may contain dots and dashes.
- Windows line ends no longer hide the duration of a request.
- Bytes that are no UTF-8 no longer stop the report.
- The slowest requests are the slowest, not the fastest; requests of 0 ms count.
- `--json`; a missing file is one line on standard error and exit status 1.
"""


def bash(command: str) -> dict[str, str]:
    return {"tool": "bash", "command": command}


def read(path: str) -> dict[str, str]:
    return {"tool": "read_file", "path": path}


def write(path: str, content: str) -> dict[str, str]:
    return {"tool": "write_file", "path": path, "content": content}


def edit(path: str, old: str, new: str) -> dict[str, str]:
    return {"tool": "edit_file", "path": path, "old": old, "new": new}


TEST = "python3 -m unittest 2>&1 | tail -25"
COUNT = "grep -cE ' (ERROR|FATAL) ' samples/app.log"
# (what the assistant says, its calls); a string alone is a user message.
SCRIPT: list[tuple[str, list[dict[str, str]]] | str] = [
    ("I'll look at the folder first.", [bash("ls -la . logreport tests samples"), read("README.md")]),
    ("Now the code, starting with the parser.", [read("logreport/parser.py")]),
    ("", [read("logreport/report.py")]),
    ("", [read("logreport/cli.py"), read("logreport/__main__.py")]),
    ("What do the tests cover?", [read("tests/test_parser.py")]),
    ("Do they pass as they are?", [bash(TEST)]),
    ("They pass. Now the tool on the main sample.", [bash("python3 -m logreport samples/app.log")]),
    ("And the truth, by grep.", [bash(COUNT + "; grep -c ' FATAL ' samples/app.log; grep -c ' ERROR ' samples/app.log")]),
    ("Far fewer, as reported. Which lines does the parser skip?", [bash("grep -vcE '^[^ ]+ (INFO|WARN|ERROR) ' samples/app.log; grep -vE '^[^ ]+ (INFO|WARN|ERROR) ' samples/app.log | head -8")]),
    ("Levels DEBUG and FATAL are missing. Components too?", [bash("grep -oE '\\[[^]]+\\]' samples/app.log | sort | uniq -c | sort -rn")]),
    ("`\\w+` does not match job-runner or mail.out. The other samples:", [bash("for f in samples/*.log; do echo \"== $f\"; python3 -m logreport $f; done")]),
    ("latin.log crashes. What is in it?", [bash("xxd samples/latin.log | head; file samples/latin.log || true")]),
    ("A Latin-1 byte. And the Windows file?", [bash("head -3 samples/windows.log | od -c | head -12")]),
    ("", [bash("python3 - <<'EOF'\nfrom logreport.parser import parse_line\nprint(parse_line('t INFO [db] request took=5ms\\r\\n'))\nEOF")]),
    ("CR hides the duration. Is this folder under version control?", [bash("git status --short | head; git log --oneline | head -3")]),
    ("No. I keep a copy to compare with.", [bash("git init -q . && git add -A && git -c user.name=agent -c user.email=agent@example.invalid commit -qm 'as found' && git log --oneline")]),
    ("First the tests that show the faults of the parser.", [write("tests/test_parser.py", PARSER_TESTS)]),
    ("", [bash(TEST)]),
    ("Four failures, as expected. Now the parser.", [write("logreport/parser.py", NEW_PARSER)]),
    ("", [bash(TEST)]),
    ("The parser is right. Does the count agree now?", [bash("python3 -m logreport samples/app.log; " + COUNT)]),
    "Good. By the way, FATAL must count as an error, see the README. And please do not touch samples/ at all.",
    ("Yes: FATAL lines are read now, but `errors` still counts ERROR only. Tests for the report.", [write("tests/test_report.py", REPORT_TESTS)]),
    ("", [bash(TEST)]),
    ("Three faults: FATAL, the sort order, and 0 ms.", [edit("logreport/report.py", '"errors": counts["ERROR"], ', '"errors": counts["ERROR"] + counts["FATAL"], ')]),
    ("", [edit("logreport/report.py", "    slow.sort()\n", "    slow.sort(reverse=True)\n")]),
    ("", [edit("logreport/report.py", 'if record["took"]:', 'if record["took"] is not None:')]),
    ("", [bash(TEST)]),
    ("Green. The report against the truth:", [bash("python3 -m logreport samples/app.log | tee /dev/stderr | grep ^errors; " + COUNT)]),
    ("They agree. Which other script reads the text report? I must not change its format.", [bash("grep -rn 'level    count' . --include='*' 2>/dev/null | grep -v '^./.git/' | head")]),
    ("Only ours. I compare the format with what was there.", [bash("git stash -q && python3 -m logreport samples/app.log > old.txt; git stash pop -q && python3 -m logreport samples/app.log > new.txt; diff <(sed 's/[0-9]/9/g' old.txt) <(sed 's/[0-9]/9/g' new.txt); rm -f old.txt new.txt")]),
    ("More levels and other requests, the same columns. Now --json: tests first.", [write("tests/test_cli.py", CLI_TESTS)]),
    ("", [bash(TEST)]),
    ("", [write("logreport/cli.py", CLI)]),
    ("", [bash(TEST)]),
    ("", [bash("python3 -m logreport --json samples/app.log samples/latin.log | python3 -c \"import json,sys\nfor l in sys.stdin: d=json.loads(l); print(d['file'], d['errors'], d['counts'])\"")]),
    ("And a missing file, and one that may not be read.", [bash("python3 -m logreport samples/none.log samples/empty.log; echo exit=$?"), bash("python3 -m logreport samples; echo exit=$?")]),
    ("Both fail in one line. A larger file, for speed:", [bash("for i in $(seq 60); do cat samples/app.log; done > big.log; wc -l big.log; time python3 -m logreport big.log | tail -4; rm big.log")]),
    ("Fast enough. Is samples/ as it was?", [bash("git status --short; git diff --stat HEAD -- samples")]),
    ("Untouched. What the change is as a whole:", [bash("git diff HEAD --stat; git diff HEAD -- logreport/report.py")]),
    ("The README should name the option.", [edit("README.md", "    python -m logreport samples/app.log\n", "    python -m logreport samples/app.log\n    python -m logreport --json samples/app.log\n")]),
    ("", [write("CHANGES.md", CHANGES)]),
    ("One more look at how it is called from elsewhere.", [bash("python3 -m logreport --help")]),
    ("A last check of odd input: a line with two durations, and one without a component.", [bash("printf 't INFO [db] took=3ms then took=9ms\\nt ERROR nothing in brackets\\n' > odd.log; python3 -m logreport --json odd.log; rm odd.log")]),
    ("An error line without a component is not counted. Is there any in the samples?", [bash("grep -cE '^[^ ]+ (ERROR|FATAL) [^[]' samples/*.log")]),
    ("None, and the README says that a line has one. All tests once more.", [bash(TEST + "; git status --short")]),
]  # fmt: skip


def execute(call: dict[str, str], folder: Path) -> str:
    """Run one call in `folder` and return what it printed, with the folder's name replaced."""
    target = folder / call.get("path", "")
    if call["tool"] == "bash":
        done = subprocess.run(
            ["bash", "-c", call["command"]], cwd=folder, capture_output=True, text=True, errors="replace"
        )
        text = done.stdout + done.stderr
        text = f"{text.rstrip()}\n[exit code {done.returncode}]" if done.returncode else text.rstrip()
    elif call["tool"] == "read_file":
        text = target.read_text()
    elif call["tool"] == "write_file":
        target.write_text(call["content"])
        text = f"wrote {len(call['content'])} characters to {call['path']}"
    else:
        before = target.read_text()
        if before.count(call["old"]) != 1:
            raise SystemExit(f"{call['path']}: the text to replace occurs {before.count(call['old'])} times")
        target.write_text(before.replace(call["old"], call["new"]))
        text = f"replaced 1 occurrence in {call['path']}"
    return text.replace(str(folder), "/workspace").replace(sys.base_prefix, "/usr")


def main() -> None:
    messages: list[dict[str, object]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    number = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for path, content in {**{k: v.encode() for k, v in PROJECT.items()}, **samples()}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        for entry in SCRIPT:
            if isinstance(entry, str):
                messages.append({"role": "user", "content": entry})
                continue
            text, steps = entry
            calls, results = [], []
            for step in steps:
                number += 1
                arguments = {k: v for k, v in step.items() if k != "tool"}
                function = {"name": step["tool"], "arguments": json.dumps(arguments)}
                calls.append({"id": f"call_{number:03}", "type": "function", "function": function})
                results.append({"role": "tool", "tool_call_id": f"call_{number:03}", "content": execute(step, folder)})
            messages += [{"role": "assistant", "content": text, "tool_calls": calls}, *results]
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool,
                "parameters": {
                    "type": "object",
                    "properties": {k: {"type": v} for k, v in fields.items()},
                    "required": list(fields),
                },
            },
        }
        for tool, fields in TOOLS.items()
    ]
    request = {"model": "example-model", "messages": messages, "tools": tools}
    target = Path(__file__).with_name("agent_history.json")
    target.write_text(json.dumps(request, ensure_ascii=False, indent=1) + "\n")
    print(f"{target.name}: {sum('tool_calls' in m for m in messages)} blocks, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
