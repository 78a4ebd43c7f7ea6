"""Errors: what a result must say to count as a failure, and what must not count."""

import json

import pytest

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import signals
from gemjax.history.signals.errors import MAX_REASON, error_in

TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n    f()\n'
    "ZeroDivisionError: division by zero\n"
)

RUN_FAILS = [
    (TRACEBACK, "Traceback (ZeroDivisionError)"),
    (f"Starting\n{TRACEBACK}", "Traceback (ZeroDivisionError)"),
    ("Traceback (most recent call last):\n  cut off", "Traceback"),
    ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"),
    ("requests.exceptions.HTTPError: 404", "requests.exceptions.HTTPError: 404"),
    ("Kerberos SessionError: KDC_ERR_WRONG_REALM(x)", "Kerberos SessionError: KDC_ERR_WRONG_REALM(x)"),
    ("> Build error occurred\n[TypeError: generate is not a function]\n", "TypeError: generate is not a function"),
    ("error: externally-managed-environment", "error: externally-managed-environment"),
    ("fatal: not a git repository", "fatal: not a git repository"),
    ("src/a.c:10:5: error: unknown type name 'x'", "src/a.c:10:5: error: unknown type name 'x'"),
    ("src/a.ts(16,58): error TS2305: Module x", "src/a.ts(16,58): error TS2305: Module x"),
    ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
    ("CMake Error at CMakeLists.txt:27 (find_package):\n  Could not find", "CMake Error at CMakeLists.txt:27"),
    ("ERROR: [youtube] x: Sign in", "ERROR: [youtube] x: Sign in"),
    ("2024-05-01 12:00:01,123 ERROR  broken", "2024-05-01 12:00:01,123 ERROR broken"),
    ("[13:55:26] ERROR    KRB5CCNAME not set", "[13:55:26] ERROR KRB5CCNAME not set"),
    ("nxc: error: unrecognized arguments: --x", "nxc: error: unrecognized arguments: --x"),
    ("npm ERR! code ELIFECYCLE", "npm ERR! code ELIFECYCLE"),
    ("make: *** [Makefile:192: build] Error 2", "make: *** [Makefile:192: build] Error 2"),
    ("E: Unable to locate package x", "E: Unable to locate package x"),
    ("[-] userDomain should be specified!", "userDomain should be specified!"),
    ("** (CompileError) lib/x.ex:1: undefined", "(CompileError) lib/x.ex:1: undefined"),
    ("thread 'main' panicked at src/main.rs:2:5:\nboom", "thread 'main' panicked at src/main.rs:2:5:"),
    ("panic: runtime error: index out of range", "panic: runtime error: index out of range"),
    ('Exception in thread "main" java.lang.X', 'Exception in thread "main" java.lang.X'),
    ("Segmentation fault (core dumped)", "segmentation fault"),
    ("bash: line 1: foo: command not found", "bash: line 1: foo: command not found"),
    ("zsh:1: command not found: nxc", "zsh:1: command not found: nxc"),
    ("./run.sh: Permission denied", "./run.sh: Permission denied"),
    ("ls: cannot access 'x': No such file or directory", "ls: cannot access 'x': No such file or directory"),
    ("python3: can't open file '/x.py': [Errno 2]", "python3: can't open file '/x.py': [Errno 2]"),
    ("bash: -c: line 2: syntax error near unexpected token", "syntax error"),
    ("curl: (6) Could not resolve host: x", "curl: (6) Could not resolve host: x"),
    ("HTTP/1.1 503 Service Unavailable", "HTTP 503"),
    ("urllib.error: HTTP Error 404: Not Found", "HTTP 404"),
    ("Request failed with status code 429", "HTTP 429"),
    ("Direct fetch failed: HTTP_429", "Direct fetch failed: HTTP_429"),
    ("Command timed out after 30 seconds", "Command timed out after 30 seconds"),
    ("Timeout during command execution over SSH", "Timeout during command execution"),
    ("Found 3 errors in 2 files", "Found 3 errors"),
    ("Failed to connect to host", "Failed to connect to host"),
    ("[1/49] x... FAIL: no captions", "[1/49] x... FAIL: no captions"),
    # tests
    ("=== 2 failed, 5 passed in 0.31s ===", "2 failed tests"),
    ("1 failed, 3 passed in 0.12s", "1 failed tests"),
    ("=== 4 passed, 146 errors in 32.82s ===", "146 errors in tests"),
    ("FAILED tests/x.py::test_a - assert 1 == 2", "failed tests"),
    ("FAILED (failures=1, errors=2)", "failed tests"),
    ("--- FAIL: TestX (0.00s)", "FAIL: TestX (0.00s)"),
    ("FAIL src/x.test.ts", "FAIL src/x.test.ts"),
    ("Tests:       1 failed, 3 passed, 4 total", "1 failed tests"),
    ("  2 failing\n", "2 failed tests"),
    ("10 tests, 3 failures", "3 failed tests"),
    ("5 examples, 1 failure", "1 failed tests"),
    ("test result: FAILED. 3 passed; 1 failed", "failed tests"),
    ("col_insert FAILED", "col_insert FAILED"),
    # exit codes, as harnesses spell them
    ("<returncode>1</returncode>\n<output>\n</output>", "exit code 1"),
    ("Exit code: 2", "exit code 2"),
    ("Error: Exit code 127\nfoo", "Error: Exit code 127"),
    ("output\n\nCommand exited with code 1", "exit code 1"),
    ("[The command completed with exit code 1.]", "exit code 1"),
    ("Process exited with status 3", "exit code 3"),
    ("exit status 1", "exit code 1"),
    ("returned non-zero exit status 1.", "exit code 1"),
    # ... and JSON
    ('{"output": "x", "metadata": {"exit_code": 1}}', "exit code 1"),
    (json.dumps({"output": TRACEBACK, "metadata": {"exit_code": 0}}), "Traceback (ZeroDivisionError)"),
    ('{"stdout": "", "stderr": "fatal: no", "exit_code": 0}', "fatal: no"),
    ('{"is_error": true, "message": "no"}', "error: no"),
    ('{"error": "boom"}', "error: boom"),
    ('{"error": {"message": "boom", "code": 3}}', "error: boom"),
    ('{"errors": ["a", "b"]}', "error: a"),
    ('{"success": false, "message": "no"}', "not successful: no"),
    ('{"ok": false}', "not successful"),
    ('{"status": 404}', "HTTP 404"),
    ('{"status": "error", "message": "no"}', "status error: no"),
    # the harness or the user refused
    ("Mutation tools are blocked while planning is active", "Mutation tools are blocked"),
    ("The user doesn't want to proceed with this tool use.", "doesn't want to proceed"),
]

RUN_IS_FINE = [
    "",
    "OK",
    "0 errors, 0 warnings",
    "Found 0 errors",
    "no errors found",
    "5 passed, 0 failed in 0.3s",
    "=== 7 passed in 0.31s ===",
    "10 tests, 0 failures",
    "Tests: 4 passed, 4 total",
    "test result: ok. 3 passed; 0 failed",
    "Total errors: 0, Skipped: 0",
    "<returncode>0</returncode>\n<output>\nfine\n</output>",
    "Process exited with code 0",
    '{"output": "", "metadata": {"exit_code": 0, "duration_seconds": 0.0}}',
    '{"error": null, "errors": [], "status": "ok", "success": true}',
    '{"status": "delivered", "code": 7}',
    "Added error handling to src/app.py",
    "    raise ValueError('x')",
    "error_count = 3",
    "[-] CCache file is not found. Skipping...",
    "grep: write error: Broken pipe",
    "Caught expected error: NotFittedError",
    "warning: unused variable",
    "DeprecationWarning: x is deprecated",
    "HTTP/1.1 200 OK",
    "The errors are listed in docs/errors.md",
    "100 items processed, took 404 ms",
]

CONTENT_IS_FINE = [
    f"   1\u2192import x\n   2\u2192{TRACEBACK}",
    "     1\tError: this is a line of the file",
    "def f():\n    raise ValueError('x')\n\nclass MyError(Exception):\n    pass",
    "12:    except Exception as error:",
    "# Troubleshooting\n\nIf you see `Error: x`, restart.\nTypeError: x is what Python prints.",
    "FAILED tests are listed below\n--- FAIL: x",
    "x" * 500 + "\nHTTP/1.1 404 Not Found in the middle\n" + "y" * 500,
    '{"order": {"status": "failed delivery"}, "items": []}',
    "The server returned an error and the connection was refused, says the article. " * 20,
]

CONTENT_FAILS = [
    ("<tool_use_error>File does not exist.</tool_use_error>", "File does not exist."),
    ("Error: file not found: a.py", "Error: file not found: a.py"),
    ("File not found: a.py", "File not found: a.py"),
    ("cat: a.py: No such file or directory", "cat: a.py: No such file or directory"),
    ("head: cannot open 'a' for reading: No such file", "head: cannot open 'a'"),
    ("OBSERVATION:\nError: 404 Client Error", "Error: 404 Client Error"),
    ("HTTP Error 404: Not Found", "HTTP 404"),
    ("Request failed with status code 403", "Request failed with status code 403"),
    ("ERROR:\nNo replacement was performed", "ERROR: No replacement was performed"),
    ("apply_patch verification failed: no such line", "apply_patch verification failed"),
    ("[Your proposed edit has introduced new syntax error(s).]", "Your proposed edit"),
    ('# var_12 = "Error: non-pending order"', "Error: non-pending order"),
    ("telegram_send: path escapes the workspace root", "path escapes"),
    ('{"error": "not found"}', "error: not found"),
]


@pytest.mark.parametrize(("text", "reason"), RUN_FAILS, ids=[t[:40] for t, _ in RUN_FAILS])
def test_a_run_that_failed(text, reason):
    found = error_in(text, quotes=False, no_match=False, is_error=False)
    assert found is not None and reason in found


@pytest.mark.parametrize("text", RUN_IS_FINE, ids=[t[:40] for t in RUN_IS_FINE])
def test_a_run_that_is_fine(text):
    assert error_in(text, quotes=False, no_match=False, is_error=False) is None


@pytest.mark.parametrize("text", CONTENT_IS_FINE, ids=[t[:30] for t in CONTENT_IS_FINE])
def test_content_that_speaks_of_errors_is_none(text):
    assert error_in(text, quotes=True, no_match=False, is_error=False) is None


@pytest.mark.parametrize(("text", "reason"), CONTENT_FAILS, ids=[t[:30] for t, _ in CONTENT_FAILS])
def test_a_failure_to_show_content(text, reason):
    found = error_in(text, quotes=True, no_match=False, is_error=False)
    assert found is not None and reason in found


def test_nothing_found_is_no_failure_but_worse_exit_codes_are():
    nothing = "<returncode>1</returncode>\n<output>\n</output>"
    assert error_in(nothing, quotes=True, no_match=True, is_error=False) is None
    assert error_in(nothing, quotes=True, no_match=False, is_error=False) == "exit code 1"
    assert error_in(nothing.replace("1", "2"), quotes=True, no_match=True, is_error=False) == "exit code 2"


def test_the_providers_flag_decides_by_itself_and_content_gives_the_reason():
    assert error_in("ok", quotes=True, no_match=False, is_error=True) == "reported by the tool: ok"
    assert error_in("", quotes=False, no_match=False, is_error=True) == "reported by the tool"
    assert error_in(TRACEBACK, quotes=False, no_match=False, is_error=True) == "Traceback (ZeroDivisionError)"


def test_a_reason_is_one_short_printable_line():
    text = "error: " + "\ud800 \x00\t" * 50 + "x" * 500 + "\nmore"
    reason = error_in(text, quotes=False, no_match=False, is_error=False)
    assert reason is not None and len(reason) <= MAX_REASON and reason.isprintable()


def test_colours_and_carriage_returns_are_ignored():
    text = "ok\r\n\x1b[31;1mError: broken\x1b[0m\r\n"
    assert error_in(text, quotes=False, no_match=False, is_error=False) == "Error: broken"


def test_a_long_result_is_read_at_both_ends():
    middle = "line of output\n" * 100_000
    assert error_in(middle + TRACEBACK, quotes=False, no_match=False, is_error=False) == "Traceback (ZeroDivisionError)"
    assert error_in("error: x\n" + middle, quotes=False, no_match=False, is_error=False) == "error: x"
    assert error_in(middle + TRACEBACK + middle, quotes=False, no_match=False, is_error=False) is None


@pytest.mark.parametrize(
    ("command", "result", "failed"),
    [
        ("cat app.log", TRACEBACK, False),
        ("python app.py", TRACEBACK, True),
        ("pytest 2>&1 | tail -3", "1 failed, 2 passed in 0.1s", True),
        ("grep -rn 'raise ValueError' src", "src/a.py:3:    raise ValueError('x')", False),
        ("grep -n foo a.py", "<returncode>1</returncode>\n<output>\n</output>", False),
        ("python a.py && grep foo out", "<returncode>1</returncode>\n<output>\n</output>", True),
        ("git log --oneline", "abc123 Fix error: wrong status", False),
        ("git commit -m x", "error: pathspec 'x' did not match", True),
        ("curl -s https://x.org/e", "<html>Error: see below</html>", False),
        ("curl -s -w 'HTTP:%{http_code}' https://x.org", "<html></html>\nHTTP:429", True),
        ("cat missing.py", "cat: missing.py: No such file or directory", True),
        ("pip list 2>/dev/null | grep -i foo", "", False),
    ],
)
def test_the_command_decides_whose_words_they_are(command, result, failed):
    call = ToolCall("1", "bash", json.dumps({"command": command}))
    found = signals(BlockContent("", "", (call,), (ToolResult("1", result),)))
    assert (found.error is not None) is failed


def test_the_first_failed_call_of_a_block_gives_its_reason():
    calls = tuple(ToolCall(str(i), "bash", '{"command": "make"}') for i in range(3))
    results = tuple(ToolResult(str(i), t) for i, t in enumerate(["fine", "error: one", "error: two"]))
    assert signals(BlockContent("", "", calls, results)).error == "error: one"
