"""The command end to end on made-up runs: what it measures, what it leaves out, and how it is stopped."""

import errno
import json
import re
from collections import Counter

import numpy as np
import pytest

from gemjax.cli import main
from gemjax.encoders import CachedEncoder
from gemjax.errors import ConfigError, EncoderError
from gemjax.evaluation.gem.checkpoints import moments
from gemjax.evaluation.gem.selectors import SELECTORS
from gemjax.evaluation.next_action.prompts import Prompts
from gemjax.evaluation.next_action.report import save
from gemjax.evaluation.next_action.run import Settings, evaluate
from gemjax.evaluation.replay import load
from tests.conftest import HashingEncoder, unbroken
from tests.evaluation.gem.conftest import Failing, conversation, record
from tests.evaluation.next_action.conftest import CAP

FEW = Settings(sample=3, block_tokens=CAP)


def write(path, text):
    path.write_text(text, "utf-8")


def raw(result):
    return next(t for t in result.tables if t.name == "N.1").raw["checkpoints"]


def test_checkpoints_are_spread_and_losses_are_the_models_own(evaluated, reader, runs):
    rows = raw(evaluated)
    # The first run has no third checkpoint.
    taken = Counter(r["trajectory"] for r in rows)
    assert taken["run-0"] == 2 and sorted(taken.values()) == [2, 2, 3]
    assert {t.name for t in evaluated.tables} == {"N.1", "N.2", "N.3", "N.3-tests"} and not evaluated.interrupted
    by_id = {t.id: moments(t) for t in load(runs).trajectories}
    prompts = Prompts(reader, CAP)
    for row in rows:
        turn, parsed = next(m for m in by_id[row["trajectory"]] if len(m[1].blocks) == row["blocks"])
        recency = np.arange(row["blocks"]) >= row["blocks"] - row["kept"]
        action = prompts.action(turn)
        assert len(action) == row["action_tokens"]
        for kept, loss in (
            (recency | True, row["full"]),
            (recency & False, row["none"]),
            (recency, row["selectors"]["recency"]["loss"]),
        ):
            ids = np.concatenate([prompts.prompt(parsed, kept), action])
            expected = reader.surprisals([ids])[0][-len(action) :].sum()
            assert loss == pytest.approx(expected, rel=1e-5)
        assert row["selectors"]["recency"]["latest_kept"] is True
        for name in SELECTORS:
            entry = row["selectors"][name]
            assert entry["rise"] == pytest.approx((entry["loss"] - row["full"]) / row["action_tokens"], abs=1e-6)


class Stopped:
    """A model whose user has enough after some passes."""

    def __init__(self, model, passes):
        self._model, self._left = model, passes

    def __getattr__(self, name):
        return getattr(self._model, name)

    def continuation_surprisals(self, prompts, continuations):
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return self._model.continuation_surprisals(prompts, continuations)


def test_a_stopped_run_keeps_what_it_has_and_goes_on_from_there(evaluated, reader, runs, tmp_path):
    settings = Settings(sample=7, block_tokens=CAP)
    encoder = CachedEncoder(HashingEncoder())
    stopped = evaluate(runs, encoder, Stopped(reader, 24), settings, disk=tmp_path / "losses")
    assert stopped.interrupted and 2 <= len(raw(stopped)) < 7 and stopped.tables
    assert "interrupted after" in stopped.footer[-1] and "of 7 checkpoints" in stopped.footer[-1]
    finished = {(r["trajectory"], r["blocks"]): r for r in raw(evaluated)}
    for row in raw(stopped):
        assert row == finished[row["trajectory"], row["blocks"]]
    enough = 10 * 7 - 24
    resumed = evaluate(runs, encoder, Stopped(reader, enough), settings, disk=tmp_path / "losses")
    assert not resumed.interrupted and raw(resumed) == raw(evaluated)
    at_once = evaluate(runs, encoder, Stopped(reader, 0), settings)
    assert at_once.interrupted and not at_once.tables
    while_encoding = evaluate(runs, CachedEncoder(Failing(KeyboardInterrupt())), reader, settings)
    assert while_encoding.interrupted and not while_encoding.tables


def test_bad_files_are_named_and_others_take_their_place(reader, runs):
    record(runs / "short.json", conversation(9, 5))
    record(runs / "ends.json", conversation(9, 16))
    (runs / "other.json").write_text('{"a": 1}')
    result = evaluate(runs, CachedEncoder(Failing(EncoderError("busy"))), reader, FEW)
    said = "\n".join(result.footer)
    for name, reason in (
        ("short.json", "5 complete blocks"),
        ("ends.json", "no tool call"),
        ("other.json", "not a recording"),
        (r"run-\d.json", "busy"),
    ):
        assert re.search(rf"{name}.*{reason}", said), said
    assert len(raw(result)) == 3 and len(result.trajectories) == 2


class Same(HashingEncoder):
    """Every text has the same vector, of this length."""

    def __init__(self, length):
        super().__init__()
        self.name, self.length = f"same-{length}", length

    def encode(self, texts):
        return np.tile(self.length * np.eye(1, self.dim, dtype=np.float32), (len(texts), 1))


def test_identical_and_zero_vectors(reader, tmp_path):
    record(tmp_path / "same.json", conversation(0, 24, same=True))
    same = evaluate(tmp_path, CachedEncoder(Same(1)), reader, Settings(sample=3, count=15, block_tokens=CAP))
    assert len(raw(same)) == 3
    json.dumps(same.with_raw_values(), allow_nan=False)
    zero = evaluate(tmp_path, CachedEncoder(Same(0)), reader, FEW)
    assert not zero.tables and "zero vectors" in "\n".join(zero.footer) and "no checkpoint" in zero.footer[-1]


def test_windows_and_counts(reader, runs):
    encoder = CachedEncoder(HashingEncoder())
    prompts = Prompts(reader, CAP)
    found = {t.id: moments(t) for t in load(runs).trajectories}
    sizes = {
        (name, len(parsed.blocks)): prompts.full_length(parsed) + len(prompts.action(turn))
        for name, rows in found.items()
        for turn, parsed in rows
    }
    window = sorted(sizes.values())[10]
    narrow = evaluate(runs, encoder, reader, Settings(sample=99, block_tokens=CAP, window=window))
    assert {(r["trajectory"], r["blocks"]) for r in raw(narrow)} == {k for k, n in sizes.items() if n <= window}
    said = "\n".join(narrow.footer)
    assert f"more than {window} tokens" in said and "99 checkpoints were asked for, 11 can be" in said
    nothing = evaluate(runs, encoder, reader, Settings(count=40, block_tokens=CAP))
    said = "\n".join(nothing.footer)
    assert not nothing.tables and said.count("can be used") == 3 and "33 of 33 checkpoints" in said
    assert "no more than 40 blocks" in said
    fixed = evaluate(runs, encoder, reader, Settings(sample=2, count=15, block_tokens=CAP))
    assert {r["kept"] for r in raw(fixed)} == {15}
    for wrong, message in (
        ({"sample": 0}, "sample = 0"),
        ({"count": 0}, "count = 0"),
        ({"count": "most"}, "count = 'most'"),
        ({"window": 4096}, "window = 4096; tiny reads 2 to 2048"),
        ({"block_tokens": 3}, "block_tokens = 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(runs, encoder, reader, Settings(**wrong))


def test_files_and_a_full_disk(evaluated, tmp_path):
    assert save(evaluated, tmp_path / "out", write) == []
    kept = json.loads((tmp_path / "out" / "next-action.json").read_text())
    assert kept["model"] == "tiny" and kept["settings"]["measured"] == 7
    assert kept["tables"][0]["raw"]["checkpoints"] == raw(evaluated)
    page = (tmp_path / "out" / "next-action.html").read_text()
    assert "data:image/png" in page and "<script" not in page and "<h1>Next-action loss" in page
    for table, shown in zip(kept["tables"], evaluated.tables, strict=True):
        for row, cells in zip(table["rows"], shown.rows, strict=True):
            for cell, number in zip(cells.cells, row["cells"], strict=True):
                assert number["value"] == cell.value and f"<td>{cell.shown()}" in page
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "next-action.json",
        "next-action.html",
        "figure-next-action.png",
        "figure-next-action.pdf",
    }

    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert len(save(evaluated, tmp_path / "out", full)) == 2


@pytest.fixture
def command(monkeypatch, tmp_path, reader):
    """The command with stand-ins for the encoder and the model, and a cache folder of the test's own."""
    monkeypatch.setenv("GEMJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gemjax.commands.next_action.encoder_from", lambda arguments: HashingEncoder())
    monkeypatch.setattr("gemjax.commands.next_action.language_model_from", lambda name: reader)

    def call(*arguments):
        small = ("--block-tokens", CAP, "--no-compilation-cache")
        return main(["eval", "next-action", *map(str, (*arguments, *small))])

    return call


def test_command(command, runs, tmp_path, capsys):
    assert command(runs, "--sample", 3, "--json", "--out", tmp_path / "out") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["settings"]["sample"] == 3 and "raw" not in printed["tables"][0]
    assert (tmp_path / "out" / "next-action.json").exists()
    assert list((tmp_path / "cache" / "losses").glob("*.vectors"))
    assert command(runs, "--sample", 3, "--no-cache") == 0
    shown = unbroken(capsys.readouterr().out)
    for part in ("3 checkpoints, 3 trajectories", "latest-action similarity", "as many blocks as the paper's rules do"):
        assert unbroken(part) in shown


def test_commands_that_cannot_run(command, runs, tmp_path, capsys, monkeypatch):
    record(tmp_path / "short.json", conversation(0, 3))
    assert command(tmp_path / "short.json") == 2
    assert unbroken("short.json: 3 complete blocks") in unbroken(capsys.readouterr().out)
    assert command(tmp_path / "absent") == 2
    assert command(runs, "--sample", 0) == 2
    assert "sample = 0" in capsys.readouterr().err
    assert command(runs, "--window", 1) == 2
    assert "window = 1; expected at least 2 tokens" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command(runs, "--count", "many")
    assert "got 'many'" in capsys.readouterr().err
    monkeypatch.setattr("gemjax.commands.next_action.encoder_from", None)
    assert command(runs, "--window", 4096) == 2  # before the encoder is loaded
    assert "window = 4096; tiny reads 2 to 2048" in capsys.readouterr().err
    monkeypatch.setattr("gemjax.commands.next_action.language_model_from", None)
    assert main(["eval", "next-action", str(runs), "--block-tokens", "3"]) == 2  # before anything is loaded
    assert "block_tokens = 3; expected at least 16" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["eval", "next-action", str(runs), "--model", str(tmp_path / "absent.gguf")]) == 2
    assert "absent.gguf is no file" in capsys.readouterr().err


def test_an_interrupted_command(command, runs, reader, capsys, monkeypatch):
    monkeypatch.setattr("gemjax.commands.next_action.language_model_from", lambda name: Stopped(reader, 12))
    assert command(runs, "--sample", 3) == 130
    assert "interrupted after 1 of 3 checkpoints" in capsys.readouterr().out
