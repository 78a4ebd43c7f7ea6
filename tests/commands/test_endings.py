"""Whatever ends a command, it ends in one line and the right status."""

import gc
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from gemjax.cli import main
from gemjax.commands.options import _mend
from gemjax.commands.process import short_warnings

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def ended(argv, before="", stdin="", **more):
    """Status, output and messages of the program itself."""
    code = f"import os, sys\n{before}\nfrom gemjax.cli import main\nsys.argv = ['gemjax', *{argv!r}]\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=stdin, capture_output=True, text=True, timeout=120, **more
    )
    return done.returncode, done.stdout, done.stderr


def while_importing(module, number):
    """Code that sends a signal when a module is about to be imported."""
    return f"""
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["argparse", "numpy", "jaxlib"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_something_is_imported(tmp_path, module, number, status):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    done = ended(["compress", str(path)], while_importing(module, number))
    assert done == (status, "", "gemjax: interrupted\n")


def wait(arguments=None):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.01)
    return 0


def test_an_interrupt_that_a_callback_swallows_comes_again(monkeypatch, capsys):
    def callback(phase, info):
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), signal.SIGINT)

    def run(arguments):
        gc.callbacks.append(callback)
        gc.collect()
        return wait()

    monkeypatch.setattr("gemjax.commands.doctor.run", run)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "gemjax: interrupted\n"


class ExtensionFileLoader:
    """What the import system's own frames are called."""

    started = False

    def exec_module(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.started = True


def test_a_native_module_starts_undisturbed(monkeypatch, capsys):
    loader = ExtensionFileLoader()
    monkeypatch.setattr("gemjax.commands.doctor.run", lambda arguments: loader.exec_module() or wait())
    assert main(["doctor"]) == 143 and loader.started
    assert capsys.readouterr().err == "gemjax: interrupted\n"


def test_what_fails_after_an_interrupt_failed_because_of_it(monkeypatch, capsys):
    def run(arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            wait()
        except KeyboardInterrupt:
            raise RuntimeError("a callback failed") from None

    monkeypatch.setattr("gemjax.commands.doctor.run", run)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "gemjax: interrupted\n"


def test_a_defect_is_one_line_or_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr("gemjax.commands.doctor.run", lambda arguments: {}["missing"])
    assert main(["doctor"]) == 70
    line = capsys.readouterr().err
    assert line.startswith("gemjax: internal error (test_endings.py:") and "KeyError: 'missing'" in line
    assert line.count("\n") == 1
    monkeypatch.setenv("GEMJAX_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["doctor"])


@pytest.mark.parametrize(
    ("number", "argv", "message"),
    [
        (0, ["validate", "-"], "gemjax: standard input or output is closed\n"),
        (1, ["validate", "FILE"], "gemjax: standard input or output is closed\n"),
        (1, ["--help"], "gemjax: standard input or output is closed\n"),
        (2, ["validate", "FILE.missing"], ""),
    ],
)
def test_a_standard_stream_is_closed(tmp_path, number, argv, message):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    argv = [word.replace("FILE", str(path)) for word in argv]
    program = [sys.executable, "-m", "gemjax.cli", *argv]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {number}>&-', "sh", *program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (2, message)


def test_the_reader_of_the_output_goes_away(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "gemjax.cli", "validate", str(path)]
    done = subprocess.run(program, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("argv", [["validate", "FILE"], ["index", "FILE", "-o", "BANK"], ["search", "BANK", "q"]])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": ' + "7" * 6_000 + "}", "has an integer of more than"),
        ('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}", "is nested too deeply"),
    ],
    ids=["digits", "nested"],
)
def test_json_that_python_cannot_read(tmp_path, capsys, argv, text, message):
    path = tmp_path / "in.json"
    path.write_text(text)
    argv = [word.replace("FILE", str(path)).replace("BANK", str(tmp_path / "bank")) for word in argv]
    assert main([*argv, "--where", text] if argv[0] == "search" else argv) == 2
    line = capsys.readouterr().err
    assert message in line and line.count("\n") == 1 and len(line) < 300


def test_a_backend_that_jax_does_not_know(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST))
    status, out, message = ended(["compress", str(path)], env={**os.environ, "JAX_PLATFORMS": "foo"})
    assert (status, out) == (2, "")
    assert message.startswith("gemjax: JAX cannot start: ") and "foo" in message and message.count("\n") == 1


def test_warnings_are_one_line_each_and_said_once(capsys):
    with short_warnings():
        for _ in range(3):
            warnings.warn("a file is\ndamaged", stacklevel=1)
    assert capsys.readouterr().err == "gemjax: a file is damaged\n"


def test_a_damaged_compiled_program_is_written_again(tmp_path, capsys):
    bad, good = tmp_path / "jit_embed-0a-cache", tmp_path / "jit_embedding-0a-cache"
    bad.write_bytes(b"x")
    good.write_bytes(b"x")
    with short_warnings():
        _mend(tmp_path)
        warnings.warn("Error reading persistent compilation cache entry for 'jit_embed': EOF", stacklevel=1)
    assert not bad.exists() and good.exists()
    assert capsys.readouterr().err == f"gemjax: {tmp_path}: a damaged compiled program (jit_embed) is made again\n"
