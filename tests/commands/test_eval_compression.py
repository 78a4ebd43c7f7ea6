"""`gemjax eval compression` as a user calls it, with a tiny model and an encoder of hashed words."""

import json

import pytest

from gemjax.errors import WeightsError
from gemjax.evaluation import compression_run
from tests.commands.eval_compression import call, path, stand_ins
from tests.evaluation import dialogue

__all__ = ["path", "stand_ins"]


def test_terminal(path, capsys, tmp_path):
    assert call(path, "--sample", 9, "--budgets", "40,80", "--methods", "random,fdtd-paper", "--ranking", "tuned") == 0
    shown = capsys.readouterr().out
    assert "9 of 36 questions that carry an answer, 3 conversations; 6 turns a question by tuned" in shown
    assert "rouge-score 0." in shown and "fdtd-paper" in shown and "truncation-retrieved" in shown
    assert "95 % t interval" in shown and "1 multi-hop n=3" in shown
    assert len(list((tmp_path / "cache").glob("readings-*.sqlite"))) == 1
    assert list((tmp_path / "cache" / "vectors").iterdir())


def test_everything_as_json_and_in_a_file(path, capsys, tmp_path):
    words = ("--sample", 3, "--budgets", "30", "--losses", 3, "--bounds", 1, "--ablations", "--methods", "fdtd")
    assert call(path, *words, "--json", "-o", tmp_path / "out.json", "--no-disk-cache") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out.json").read_text())
    assert {"methods", "ablations", "answer_loss", "bounds", "encoder", "model", "ranking"} < printed.keys()
    assert printed["methods"]["fdtd"]["30"]["recall"]["difference"]["of"] == 3
    assert not (tmp_path / "cache").exists()
    assert call(path, *words, "--no-disk-cache") == 0
    shown = capsys.readouterr().out
    for part in ("what the change does", "(from fdtd-paper-by-turn)", "no turns", "bound held"):
        assert part in shown


def test_without_a_sample_nothing_reads_for_every_question(path, capsys):
    assert call(path, "--budgets", "40", "--json") == 0
    streams = capsys.readouterr()
    assert list(json.loads(streams.out)["methods"]) == [
        "truncation-retrieved", "truncation-last", "random", "selection", "fdtd", "fdtd-paper-by-turn",
    ]  # fmt: skip
    assert "without --sample: not fdtd-paper, self-information" in streams.err
    assert call(path, "--sample", 3, "--budgets", "40", "--no-each-question", "--ablations", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert "fdtd-paper" not in report["methods"] and "fdtd-paper-by-turn, no decay" in report["ablations"]
    assert call(path, "--budgets", "40", "--each-question", "--json") == 0
    streams = capsys.readouterr()
    assert "fdtd-paper" in json.loads(streams.out)["methods"] and "without --sample" not in streams.err


def test_an_interruption_prints_what_is_finished(path, capsys, monkeypatch):
    real = compression_run.measure

    def measure(name, *rest):
        if name == "selection":
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr(compression_run, "measure", measure)
    assert call(path, "--budgets", "40") == 130
    streams = capsys.readouterr()
    assert "random" in streams.out and "selection" not in streams.out
    assert "interrupted" in streams.err
    monkeypatch.setattr(compression_run, "measure", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call(path, "--budgets", "40") == 130
    assert "no method was finished" in capsys.readouterr().out


def test_long_steps_are_announced(path, capsys, monkeypatch):
    monkeypatch.setattr("gemjax.commands.eval_compression._LONG_SECONDS", 0.0)
    assert call(path, "--budgets", "40", "--methods", "random") == 0
    assert "random: about 0 min" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "fast"), "unknown methods 'fast'; there are truncation-retrieved"),
        (("--methods", ""), "no method is named; there are truncation-retrieved"),
        (("--methods", " ,"), "no method is named; there are truncation-retrieved"),
        (("--losses", "-1"), "expected whole numbers of at least 0, got '-1'"),
        (("--bounds", "-1"), "expected whole numbers of at least 0, got '-1'"),
        (("--ranking", "fast"), "unknown ranking 'fast'; there are cosine"),
        (("-o", "/no/such/folder/x.json"), "its folder does not exist"),
        (("--budgets", "250,0"), "expected whole numbers of at least 1, got '0'"),
        (("--budgets", "some"), "got 'some'"),
        (("--sample", "0"), "got '0'"),
        (("--seed", "-1"), "expected whole numbers of at least 0, got '-1'"),
        (("--top", "0"), "got '0'"),
    ],
)
def test_bad_options(path, words, message, capsys):
    try:
        status = call(path, *words)
    except SystemExit as exit:
        status = exit.code
    assert status == 2
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_written_costs_the_file_alone(path, capsys):
    words = ("--budgets", "40", "--methods", "random", "--losses", 0, "--bounds", 0)
    assert call(path, *words, "--json", "-o", "/dev/full") == 2
    streams = capsys.readouterr()
    report = json.loads(streams.out)
    assert "random" in report["methods"] and "answer_loss" not in report and "bounds" not in report
    assert streams.err == "gemjax: /dev/full: No space left on device\n"


def test_a_folder_is_refused_before_the_work(path, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("gemjax.commands.eval_compression.language_model", None)
    assert call(path, "-o", tmp_path) == 2
    assert capsys.readouterr().err == f"gemjax: {tmp_path}: is a folder; name a file in it\n"


def test_bad_files_and_missing_weights(path, tmp_path, capsys, monkeypatch):
    silent = dialogue.conversation(0)
    silent["qa"] = silent["qa"][-1:]
    files = {
        "absent.json": (None, "cannot read"),
        "other.json": ('[{"messages": []}]', "conversation 0 is not in LoCoMo's schema"),
        "empty.json": ("[]", "expected a non-empty list"),
        "silent.json": (json.dumps([silent]), "no question carries an answer"),
    }
    for name, (text, message) in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        assert call(tmp_path / name) == 2
        err = capsys.readouterr().err
        assert message in err and len(err.splitlines()) == 1

    def missing(name):
        raise WeightsError("no weights for it")

    monkeypatch.setattr("gemjax.commands.eval_compression.language_model", missing)
    assert call(path) == 2
    assert capsys.readouterr().err == "gemjax: no weights for it\n"
