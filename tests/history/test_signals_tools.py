"""Tool calls of the agents people use: what each name and its arguments mean."""

import json

import pytest

from gemjax.history.records import BlockContent, ToolCall, ToolResult
from gemjax.history.signals import BlockSignals, signals
from gemjax.history.signals.arguments import fields
from gemjax.history.signals.paths import looks_like_path, normalise
from gemjax.history.signals.tools import canonical

PATCH = (
    "*** Begin Patch\n*** Update File: src/app.py\n@@\n-a\n+b\n*** Move to: src/main.py\n*** Delete File: x.py\n"
    "*** End Patch"
)


def block(name: str, arguments, result: str = "ok", is_error: bool = False) -> BlockContent:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return BlockContent("", "", (ToolCall("1", name, text),), (ToolResult("1", result, is_error),))


def of(name: str, arguments, result: str = "ok", is_error: bool = False) -> BlockSignals:
    return signals(block(name, arguments, result, is_error))


WRITES = [
    # Claude Code
    ("Write", {"file_path": "/w/a.py", "content": "x"}, ["/w/a.py"]),
    ("Edit", {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"}, ["/w/a.py"]),
    ("MultiEdit", {"file_path": "/w/a.py", "edits": [{"old_string": "x", "new_string": "y"}]}, ["/w/a.py"]),
    ("NotebookEdit", {"notebook_path": "/w/n.ipynb", "new_source": "x"}, ["/w/n.ipynb"]),
    ("Bash", {"command": "echo x > y", "description": "d"}, ["y"]),
    # Codex
    ("shell", {"command": ["bash", "-lc", "echo x > y"], "workdir": "/w"}, ["/w/y"]),
    ("shell", {"command": ["apply_patch", PATCH]}, ["src/app.py", "src/main.py", "x.py"]),
    ("apply_patch", {"input": PATCH}, ["src/app.py", "src/main.py", "x.py"]),
    ("apply_patch", PATCH, ["src/app.py", "src/main.py", "x.py"]),
    ("exec_command", {"cmd": "touch y", "workdir": "/w"}, ["/w/y"]),
    # OpenHands and SWE-agent
    ("str_replace_editor", {"command": "create", "path": "/w/a.py", "file_text": "x"}, ["/w/a.py"]),
    ("str_replace_editor", {"command": "str_replace", "path": "/w/a.py", "old_str": "x"}, ["/w/a.py"]),
    ("str_replace_editor", {"command": "insert", "path": "/w/a.py", "insert_line": 1}, ["/w/a.py"]),
    ("str_replace_editor", {"command": "undo_edit", "path": "/w/a.py"}, ["/w/a.py"]),
    ("str_replace_based_edit_tool", {"command": "create", "path": "a.py"}, ["a.py"]),
    ("execute_bash", {"command": "rm a"}, ["a"]),
    ("run_ipython", {"code": "edit_file_by_replace('/w/a.py', to_replace='x')"}, ["/w/a.py"]),
    ("execute_ipython_cell", {"code": "df.to_csv('o.csv')"}, ["o.csv"]),
    ("bash", {"command": "str_replace_editor create /w/a.py --file_text 'x'"}, ["/w/a.py"]),
    ("shell", {"command": "create solve.py"}, ["solve.py"]),
    # pi, deer-flow, Gemini CLI, Cline, Cursor, aider
    ("edit", {"path": "a.ts", "oldText": "x", "newText": "y"}, ["a.ts"]),
    ("write_file", {"path": "/w/r.md", "content": "x", "description": "d"}, ["/w/r.md"]),
    ("str_replace", {"path": "/w/r.md", "old_str": "x", "new_str": "y"}, ["/w/r.md"]),
    ("replace", {"file_path": "/w/a.ts", "old_string": "x"}, ["/w/a.ts"]),
    ("write_to_file", {"path": "a.ts", "content": "x"}, ["a.ts"]),
    ("edit_file", {"target_file": "a.ts", "code_edit": "x"}, ["a.ts"]),
    ("delete_file", {"target_file": "a.ts"}, ["a.ts"]),
    ("move_file", {"source": "a.ts", "destination": "b.ts"}, ["a.ts", "b.ts"]),
    ("apply_diff", {"diff": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@"}, ["x.py"]),
    # MCP servers
    ("mcp__filesystem__write_file", {"path": "/w/a.py", "content": "x"}, ["/w/a.py"]),
    ("mcp__github__create_or_update_file", {"path": "a.py", "repo": "r"}, ["a.py"]),
    ("mcp__github__createIssue", {"repo": "u/r", "title": "t"}, ["title=t"]),
    ("functions.create-ticket", {"ticket_id": 9}, ["ticket_id=9"]),
    # APIs: the record is the artifact
    ("update_reservation_flights", {"reservation_id": "JG7", "payment_id": "c1", "cabin": "x"}, ["reservation_id=JG7"]),
    ("cancel_reservation", {"reservation_id": "JG7"}, ["reservation_id=JG7"]),
    ("cancel_pending_order", {"reason": "r", "order_id": "#W1"}, ["order_id=#W1"]),
    ("return_delivered_order_items", "{'order_id': '#W1', 'item_ids': ['1']}", ["order_id=#W1"]),
    ("book_reservation", {"user_id": "u1", "origin": "SFO"}, ["user_id=u1"]),
    ("send_email", {"to": "a@b.c", "body": "x"}, ["to=a@b.c"]),
    ("gmail_send_email", {"recipient": "a@b.c"}, ["recipient=a@b.c"]),
    ("telegram_send", {"caption": "x"}, ["telegram_send()"]),
    ("add_compromised_account", {"username": "u", "password": "p"}, ["username=u"]),
    ("submit", {}, ["submit()"]),
    ("transfer_to_human_agents", {"summary": "s"}, ["transfer_to_human_agents()"]),
]

NOT_WRITES = [
    ("Read", {"file_path": "/w/a.py"}),
    ("Grep", {"pattern": "x", "path": "/w"}),
    ("Glob", {"pattern": "*.py"}),
    ("TodoWrite", {"todos": []}),
    ("write_todos", {"todos": []}),
    ("update_plan", {"plan": []}),
    ("write_stdin", {"session_id": 1, "chars": "x"}),
    ("think", {"thought": "cancel_order > x"}),
    ("ask_clarification", {"question": "q"}),
    ("calculate", {"expression": "3 > 2"}),
    ("str_replace_editor", {"command": "view", "path": "/w/a.py"}),
    ("get_reservation_details", {"reservation_id": "JG7"}),
    ("get_update_status", {"id": "7"}),
    ("search_direct_flight", {"origin": "SFO"}),
    ("find_user_id_by_email", {"email": "a@b.c"}),
    ("list_all_product_types", {}),
    ("web_search", {"query": "how to delete files"}),
    ("web_fetch", {"url": "https://x.org"}),
    ("browser", {"action": "open", "url": "https://x.org"}),
    ("Task", {"description": "write tests", "prompt": "create x.py"}),
    ("perform_task", {"next_step": "update it"}),
    ("BashOutput", {"bash_id": "1"}),
    ("finish", {"outputs": {}}),
]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"), WRITES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(WRITES)]
)
def test_writes(name, arguments, expected):
    found = of(name, arguments)
    assert list(found.writes) == expected
    assert found.mutates and set(found.writes) <= set(found.touches)


@pytest.mark.parametrize(("name", "arguments"), NOT_WRITES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(NOT_WRITES)])
def test_not_writes(name, arguments):
    found = of(name, arguments)
    assert found.writes == () and not found.mutates


@pytest.mark.parametrize(
    ("name", "arguments", "result", "written"),
    [
        ("Edit", {"file_path": "a.py"}, "<tool_use_error>String to replace not found in file.</tool_use_error>", False),
        (
            "str_replace_editor",
            {"command": "str_replace", "path": "a.py"},
            "ERROR:\nNo replacement was performed",
            False,
        ),
        ("cancel_order", {"order_id": "1"}, "Error: order cannot be cancelled", False),
        ("cancel_order", {"order_id": "1"}, '{"order_id": "1", "status": "cancelled"}', True),
        ("bash", {"command": "cp a b"}, "cp: cannot stat 'a': No such file or directory", False),
        ("bash", {"command": "sed -i s/a/b/ x.py && pytest"}, "1 failed in 0.1s", True),
        ("bash", {"command": "python - <<E\nopen('x.py','w')\n1/0\nE"}, "Traceback (most recent call last):\nx", True),
    ],
)
def test_a_failed_single_purpose_call_wrote_nothing(name, arguments, result, written):
    found = of(name, arguments, result)
    assert found.mutates is written
    assert found.touches  # it still names what it was about


def test_sweagents_edit_names_its_file_in_the_result():
    result = "[File: /w/solve.py (5 lines total)]\n1:x\nFile updated."
    found = of("shell", {"command": "edit 1:1\nrm -rf / > x\nend_of_edit"}, result)
    assert found.writes == ("/w/solve.py",)
    assert of("shell", {"command": "edit 1:1\nx\nend_of_edit"}, "").writes == ("open file",)


def test_a_program_may_announce_what_it_wrote():
    result = "[*] Saving credential cache to 'admin.ccache'\nReport written to out/r.html."
    assert of("bash", {"command": "cd /w && certipy auth"}, result).writes == ("/w/admin.ccache", "/w/out/r.html")
    assert of("bash", {"command": "cat log.txt"}, result).writes == ()


@pytest.mark.parametrize(
    ("name", "arguments", "result", "sources"),
    [
        ("Read", {"file_path": "/w/a.py", "limit": 10}, "1→x", ("/w/a.py",)),
        ("read_file", {"path": "./docs//a.md"}, "x", ("docs/a.md",)),
        ("read_many_files", {"paths": ["a.py", "b.py"]}, "x", ("a.py", "b.py")),
        ("read", {"path": "https://www.x.org/a/#f"}, "x", ("x.org/a",)),
        ("str_replace_editor", {"command": "view", "path": "/w/a.py"}, "1\tx", ("/w/a.py",)),
        ("WebFetch", {"url": "https://x.org/a?utm_source=t", "prompt": "p"}, "page", ("x.org/a",)),
        ("browser", {"action": "open", "url": "https://x.org/"}, "Opened", ("x.org",)),
        ("web_search", {"query": "JAX  sharding"}, "[{'title': 'x'}]", ("search: jax sharding",)),
        ("search_docs", {"q": "vmap"}, "hit", ("search: vmap",)),
        ("Grep", {"pattern": "x", "path": "/w/a.py"}, "3:x", ("/w/a.py",)),
        ("Grep", {"pattern": "x", "path": "/w"}, "a.py:3:x", ()),
        ("run_ipython", {"code": "open_file('/w/a.py')"}, "[File: /w/a.py (3 lines total)]", ("/w/a.py",)),
        ("ls", {"path": "/w"}, "a.py", ()),
        ("search_tool_bm25", {"query": "send file"}, "{}", ()),
        ("get_order_details", {"order_id": "1"}, "{}", ()),
        # a read that failed or showed nothing is no source
        ("Read", {"file_path": "/w/a.py"}, "<tool_use_error>File does not exist.</tool_use_error>", ()),
        ("web_search", {"query": "x"}, "[]", ()),
        ("bash", {"command": "grep foo a.py"}, "<returncode>1</returncode>\n<output>\n</output>", ()),
        ("Bash", {"command": "cat a.py"}, "", ()),
    ],
)
def test_sources(name, arguments, result, sources):
    assert of(name, arguments, result).sources == sources


def test_records_of_an_api_are_touched_by_the_argument_that_identifies_them():
    assert of("get_reservation_details", {"reservation_id": "JG7"}).touches == ("reservation_id=JG7",)
    assert of("get_user_details", {"user_id": "u"}).touches == ("user_id=u",)


def test_parallel_calls_are_paired_with_their_results_by_id_or_else_by_position():
    calls = (ToolCall("a", "Edit", '{"file_path": "a.py"}'), ToolCall("b", "Edit", '{"file_path": "b.py"}'))
    failed, done = ToolResult("a", "Error: no such file"), ToolResult("b", "updated")
    assert signals(BlockContent("", "", calls, (done, failed))).writes == ("b.py",)
    same = tuple(ToolCall("x", c.name, c.arguments) for c in calls)
    results = (ToolResult("x", "Error: no such file"), ToolResult("x", "updated"))
    assert signals(BlockContent("", "", same, results)).writes == ("b.py",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        (" {'a': \"b'c\"} ", {"a": "b'c"}),
        ("free text", {"text": "free text"}),
        ('"quoted text"', {"text": "quoted text"}),
        ("{broken", {"text": "{broken"}),
        ("[1, 2]", {"text": "[1, 2]"}),
        ("", {}),
        ("{" * 100_000, {"text": "{" * 100_000}),
    ],
    ids=range(8),
)
def test_arguments_become_fields(text, expected):
    assert fields(text) == expected


@pytest.mark.parametrize(
    ("raw", "cwd", "expected"),
    [
        ("./a//b/../c.py", "", "a/c.py"),
        ("../x", "/w/a", "/w/x"),
        ("../x", "", "../x"),
        ("/a/../../b", "", "/b"),
        ("~/a", "/w", "a"),
        ("$HOME/a", "/w", "a"),
        ("'a.py',", "", "a.py"),
        ("file:///w/a.py", "", "/w/a.py"),
        ("a.py:12:5", "", "a.py"),
        ("tests/t.py::test_x[1]", "", "tests/t.py"),
        ("C:\\w\\a.py", "/x", "C:/w/a.py"),
        ("https://x.org/a", "", ""),
        ("/dev/null", "", ""),
        ("-", "", ""),
        (".", "", ""),
        (".", "/w", "/w"),
        ("a\x00\ud800b", "", "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"),
        ("x" * 500, "", ""),
    ],
)
def test_one_spelling_for_a_path(raw, cwd, expected):
    assert normalise(raw, cwd) == expected


@pytest.mark.parametrize(
    "word",
    [
        "src/app.py",
        "a.txt",
        "Makefile",
        "/etc",
        "./run.sh",
        "../x",
        "README.md",
        ".env",
        "C:\\x",
        "t.py::test",
        "a.py:3",
    ],
)
def test_words_that_are_paths(word):
    assert looks_like_path(word)


NO_PATHS = ["app", "np.save", "1.2.3", "-x", "--out=a.py", "text/html", "s/a/b/", "a=b", "x|y", "and/or", "origin/main"]


@pytest.mark.parametrize("word", [*NO_PATHS, "42", "https://x.org/a.py", "*.py", "", ".", "a b/c", "x" * 500])
def test_words_that_are_none(word):
    assert not looks_like_path(word)


def test_a_tool_is_called_the_same_whatever_is_put_before_its_name():
    names = ["mcp__github__createIssue", "functions.create-issue", "github/createIssue", "CreateIssue", "create_issue"]
    assert {canonical(n) for n in names} == {"create_issue"}
