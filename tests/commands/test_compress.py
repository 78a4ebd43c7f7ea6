"""`gemjax compress` and `gemjax validate`: what they print, what they write, and one clear line for bad input."""

import io
import json
import os
import subprocess
import sys

import pytest

import gemjax
from gemjax.cli import main
from tests.conftest import ROOT, HashingEncoder
from tests.history.requests import chat, chat_block

EXAMPLE = str(ROOT / "docs" / "examples" / "agent_history.json")


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """No weights and no compilation cache: these tests are about the commands."""
    monkeypatch.setattr("gemjax.commands.compress.encoder_from", lambda arguments: HashingEncoder())
    monkeypatch.setattr("gemjax.commands.compress.start_jax", lambda arguments: None)
    monkeypatch.setattr("gemjax.commands.compress.vector_directory", lambda: None)


def run(capsys, *argv):
    status = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return status, out, err


def write(tmp_path, value, name="request.json"):
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_prints_what_was_kept_and_dropped_and_why(capsys):
    status, out, err = run(capsys, "compress", EXAMPLE)
    assert status == 0 and err == ""
    assert "compressed: new history" in out
    assert "recent: " in out and "drop" in out and "characters" in out


def test_json_is_one_object(capsys, tmp_path):
    path = write(tmp_path, chat(40))
    status, out, _ = run(capsys, "compress", path, "--json", "--goal", "fix", "--delta", "0.5")
    value = json.loads(out)
    assert status == 0 and set(value) == {"status", "reason", "request", "report"}
    assert value["status"] == "compressed" and len(value["report"]["blocks"]) == 40
    assert gemjax.validate(value["request"]) == []
    assert value["report"]["chars_after"] >= 0.5 * value["report"]["chars_before"]


def test_delta_zero_gives_the_input_back(capsys, tmp_path):
    request = chat(40)
    path, target = write(tmp_path, request), tmp_path / "out.json"
    status, out, _ = run(capsys, "compress", path, "--delta", "0", "-o", target)
    assert status == 0 and json.loads(target.read_text()) == request and "unchanged" in out


def test_output_to_standard_output_is_the_request_alone(capsys, tmp_path):
    status, out, _ = run(capsys, "compress", write(tmp_path, chat(40)), "-o", "-")
    assert status == 0 and gemjax.validate(json.loads(out)) == [] and len(json.loads(out)["messages"]) < 82


def test_a_target_without_a_folder_is_refused_before_any_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("gemjax.commands.compress.encoder_from", lambda arguments: pytest.fail("work was done"))
    for option in ("-o", "--state"):
        status, _, err = run(capsys, "compress", write(tmp_path, chat(40)), option, tmp_path / "none" / "x.json")
        assert status == 2 and "its folder does not exist" in err


def test_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(chat(40)["messages"]).encode())))
    status, out, _ = run(capsys, "compress", "-", "--json")
    assert status == 0 and isinstance(json.loads(out)["request"], list)


def test_state_file_carries_the_forwarded_set_over_calls(capsys, tmp_path):
    request = chat(40)
    path, state = write(tmp_path, request), tmp_path / "state.json"
    first = json.loads(run(capsys, "compress", path, "--json", "--state", state)[1])
    request["messages"] += chat_block(99)
    path = write(tmp_path, request)
    second = json.loads(run(capsys, "compress", path, "--json", "--state", state)[1])
    assert first["report"]["event"] and not second["report"]["event"]
    assert second["report"]["forwarded"] == [*first["report"]["forwarded"], 40]


def test_a_recorded_trajectory_brings_its_goal(capsys, tmp_path):
    path = write(tmp_path, {"source": "x", "domain": "y", "goal": "recorded goal", "messages": chat(20)["messages"]})
    assert run(capsys, "compress", path)[0] == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("not json", "is not JSON"),
        ("", "is not JSON"),
        ("5", "holds no request"),
        ('"text"', "holds no request"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
@pytest.mark.parametrize("command", ["compress", "validate"])
def test_what_is_no_request_is_one_line_and_status_2(capsys, tmp_path, content, text, command):
    status, _, err = run(capsys, command, write(tmp_path, content))
    assert status == 2 and text in err and err.startswith("gemjax: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{}", "messages must be a non-empty array, got nothing"),
        ("[]", "the list of messages is empty"),
        ('{"messages": [5]}', "a message must be an object, got a number"),
    ],
)
def test_invalid_requests_fail_compress_with_2_and_validate_with_1(capsys, tmp_path, content, text):
    path = write(tmp_path, content)
    status, _, err = run(capsys, "compress", path)
    assert status == 2 and text in err and err.count("\n") == 1
    status, out, _ = run(capsys, "validate", path)
    assert status == 1 and text in out


def test_binary_missing_and_unreadable_files(capsys, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    for name, text in [("binary", "is not UTF-8 text"), ("absent", "No such file"), (".", "Is a directory")]:
        status, _, err = run(capsys, "compress", tmp_path / name)
        assert status == 2 and text in err and err.count("\n") == 1


def test_a_failed_write_keeps_the_old_file(capsys, tmp_path, monkeypatch):
    path, target = write(tmp_path, chat(40)), write(tmp_path, "old", "out.json")

    def full(source, target):
        raise OSError(28, "No space left on device", str(source))

    monkeypatch.setattr(os, "replace", full)
    status, _, err = run(capsys, "compress", path, "-o", target)
    assert status == 2 and "No space left" in err and target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "request.json"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--delta", "7"], "delta must be a share"),
        (["--delta", "much"], "invalid float value"),
        (["--prices", "1,2"], "expected three numbers R,W,U"),
        (["--prices", "1,-2,1"], "must be finite and >= 0"),
        (["--prices", "2,1,1"], "write must be at least read"),
        (["--policy", "weekly"], "invalid choice"),
        (["--arrival", "many"], "expected LIMIT,KEEP in characters such as 2000,1000, got 'many'"),
        (["--arrival", "600,900"], "keep must be at most limit (600), got 900"),
        (["--format", "xml"], "invalid choice"),
    ],
)
def test_bad_options_exit_with_2(capsys, options, text):
    try:
        status = main(["compress", EXAMPLE, *options])
    except SystemExit as stop:
        status = stop.code
    assert status == 2 and text in capsys.readouterr().err


def test_bad_state_files(capsys, tmp_path):
    path = write(tmp_path, chat(20))
    state = write(tmp_path, '{"version": 5}', "state.json")
    status, _, err = run(capsys, "compress", path, "--state", state)
    assert status == 2 and "state version must be 1, got 5" in err and state.read_text() == '{"version": 5}'


def test_validate_reports_and_exits_1(capsys, tmp_path):
    request = chat(3)
    good = write(tmp_path, request, "good.json")
    request["messages"].pop(3)
    bad = write(tmp_path, request, "bad.json")
    status, out, _ = run(capsys, "validate", good, bad)
    assert status == 1
    assert f"{good}: valid (chat, 8 messages, 3 blocks)" in out
    assert f"{bad}: error: message 2: missing-result (id 'call_0')" in out
    status, out, _ = run(capsys, "validate", "--json", good)
    assert status == 0 and json.loads(out) == {str(good): []}


def test_validate_goes_on_after_a_file_that_cannot_be_read(capsys, tmp_path):
    good = write(tmp_path, chat(3), "good.json")
    status, out, err = run(capsys, "validate", "--json", tmp_path / "none.json", good)
    assert status == 2 and json.loads(out) == {str(tmp_path / "none.json"): None, str(good): []}
    assert "No such file" in err


def test_help_and_version_are_instant_and_import_nothing_heavy():
    code = (
        "import sys; from gemjax.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('jax', 'flax', 'torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]") and "compress" in done.stdout and "doctor" in done.stdout
    done = subprocess.run([sys.executable, "-m", "gemjax.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"gemjax {gemjax.__version__}"
