"""`gemjax eval answers` as a user calls it, with a scripted generator and an encoder of hashed words."""

import json

import pytest

from gemjax.cli import main
from gemjax.evaluation.answers.scoring import JUDGE_PROMPT
from tests.conftest import HashingEncoder
from tests.coremem.scripted import ScriptedGenerator
from tests.evaluation import dialogue


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setattr("gemjax.commands.eval_answers.encoder_from", lambda arguments: HashingEncoder())

    def generator(arguments, status=None):
        if arguments.endpoint is not None:
            judge = ScriptedGenerator("Yes")
            judge.model = "the judge"
            return judge
        return ScriptedGenerator("Lisbon in 2000")

    monkeypatch.setattr("gemjax.commands.eval_answers.generator_from", generator)


@pytest.fixture
def path(tmp_path):
    return dialogue.write(tmp_path / "locomo.json")


def call(*words):
    return main(["eval", "answers", *map(str, words), "--no-compilation-cache"])


def test_table_and_files(path, capsys, tmp_path):
    kept, out = tmp_path / "kept.jsonl", tmp_path / "report.json"
    judge = ("--judge-endpoint", "http://judge", "--judge-model", "j")
    methods = ("--methods", "nothing,cosine,coremem")
    assert call(path, *methods, "--limit", 12, "--kept", kept, "-o", out, "--resamples", 20, *judge) == 0
    shown = capsys.readouterr().out
    assert "Generator scripted" in shown and "Judge: the judge" in shown and "coremem" in shown
    assert " ".join(JUDGE_PROMPT.split()) in " ".join(shown.split())
    report = json.loads(out.read_text())
    assert set(report["methods"]) == {"nothing", "cosine", "coremem"} and report["budget"] == 500
    assert report["methods"]["cosine"]["judged"]["value"] == 1.0 and report["format"] == "LoCoMo"
    n = report["methods"]["cosine"]["n"] + report["methods"]["cosine"]["n_unanswerable"]
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert n == 12 and len({line["key"] for line in lines}) == 36
    assert call(path, *methods, "--limit", 12, "--kept", kept, "--json", "--resamples", 20) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["methods"]["cosine"]["contained"] == report["methods"]["cosine"]["contained"]
    assert len(kept.read_text().splitlines()) == len(lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "magic"), "unknown methods 'magic'; there are nothing, everything"),
        (("--judge-model", "m"), "belong together"),
        (("--kept", "."), "is a folder"),
    ],
)
def test_one_line_and_status_two(path, capsys, words, message):
    assert call(path, *words) == 2
    errors = capsys.readouterr().err
    assert message in errors and len(errors.strip().splitlines()) == 1
