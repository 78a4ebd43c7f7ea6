"""`gemjax remember` and `gemjax ask`, run in this process on a bank of hashed words and with a scripted generator."""

import argparse
import json

import numpy as np
import pytest

from gemjax.commands import ask, remember
from gemjax.coremem import UnansweredError
from gemjax.errors import GemjaxError, MemoryBankError, RequestError, StateError
from tests.coremem.scripted import ScriptedGenerator

TURNS = [
    {"speaker": "Ann", "text": "I paint rivers. My teacher is called Vera.", "time": "2023-05-08"},
    {"speaker": "Bob", "text": "The dog is called Rex.", "time": "2023-05-09"},
    {"speaker": "Ann", "text": "We moved to \x1b[31mOslo.", "time": "2023-06-01"},
]


@pytest.fixture
def generator(monkeypatch, hashing_encoder):
    for module in (remember, ask):
        monkeypatch.setattr(module, "encoder_from", lambda arguments: hashing_encoder)
    scripted = ScriptedGenerator("Rex")
    monkeypatch.setattr(ask, "generator_from", lambda arguments: scripted)
    return scripted


@pytest.fixture
def chat(tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in TURNS))
    return path


def run(module, *words):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.run(parser.parse_args([*map(str, words), "--no-compilation-cache"]))


def test_remember_then_ask(tmp_path, capsys, generator, chat):
    bank = tmp_path / "bank"
    assert run(remember, chat, "--bank", bank) == 0
    assert capsys.readouterr().out == f"{bank}: 3 turns remembered, 3 memories in all\n"
    assert run(remember, chat, "--bank", bank, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "bank": str(bank), "format": "turns", "added": 0, "known": 3, "memories": 3,
    }  # fmt: skip
    assert run(ask, bank, "What is the dog called", "--date", "2024-02-01") == 0
    out, errors = capsys.readouterr()
    assert out == "Rex\n" and "3 of 3 memories" in errors and "1 answered" in errors
    assert "Today is 1 February 2024." in generator.prompts[-1][-1]["content"]


def test_show_says_where_the_evidence_is_from_and_what_was_kept(tmp_path, capsys, generator, chat):
    bank = tmp_path / "bank"
    run(remember, chat, "--bank", bank, "--session", "s1")
    capsys.readouterr()
    assert run(ask, bank, "Ann: I paint rivers.", "--show", "--budget", "16") == 0
    out = capsys.readouterr().out
    assert "[8 May 2023] Ann: I paint rivers. ~~My teacher is called Vera.~~  (" in out and ", session s1)" in out
    assert "2 memories more had no room" in out and out.endswith("\n\nRex\n")
    assert run(ask, bank, "moved", "--no-answer") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "We moved to \ufffd[31mOslo." in out and "Rex." in out


def test_json_has_everything(tmp_path, capsys, generator, chat):
    bank = tmp_path / "bank"
    run(remember, chat, "--bank", bank)
    capsys.readouterr()
    where = ("--where", '{"speaker": "Bob"}', "--session", "2023-05-09")
    assert run(ask, bank, "dog", "--json", "--max-tokens", "7", *where) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "Rex" and not answer["abstained"] and answer["ledger"]["tokens_answered"] == 1
    (part,) = answer["recollection"]["evidence"]
    assert part["text"] == "Bob: The dog is called Rex." and part["happened_at"] == "2023-05-09T00:00:00+00:00"
    assert run(ask, bank, "dog", "--json", "--no-answer") == 0
    assert len(json.loads(capsys.readouterr().out)["evidence"]) == 3


def test_abstentions_and_prompts(tmp_path, capsys, generator, chat):
    bank = tmp_path / "bank"
    run(remember, chat, "--bank", bank, "--scope", "ann/desk")
    capsys.readouterr()
    assert run(ask, bank, "dog", "--scope", "bob") == 0
    out, errors = capsys.readouterr()
    assert out == "Nothing that is remembered answers this.\n" and "there is no memory in scope 'bob'" in errors
    assert run(ask, bank, "dog", "--support", "0.999") == 0
    assert "supports an answer" in capsys.readouterr().err
    assert run(ask, bank, "dog", "--scope", "ann", "--support", "none") == 0
    assert capsys.readouterr().out == "Rex\n"
    (tmp_path / "prompt.json").write_text('{"system": "", "user": "{memories} || {question}"}')
    assert run(ask, bank, "dog", "--prompt", tmp_path / "prompt.json") == 0
    (message,) = generator.prompts[-1]
    assert message["content"].endswith(" || dog")


def test_a_generator_that_fails_leaves_the_evidence_on_the_screen(tmp_path, capsys, generator, chat):
    run(remember, chat, "--bank", tmp_path / "bank")
    capsys.readouterr()
    generator.fails = "the endpoint is away"
    with pytest.raises(UnansweredError, match="away"):
        run(ask, tmp_path / "bank", "dog", "--show")
    assert "Rex" in capsys.readouterr().out
    with pytest.raises(UnansweredError):
        run(ask, tmp_path / "bank", "dog", "--json")
    assert json.loads(capsys.readouterr().out)["evidence"]


def test_several_dialogues_are_scopes(tmp_path, capsys, generator):
    users = {
        name: {"history": {"2023-04-27": [{"query": f"My dog is {dog}.", "response": "Nice."}]}}
        for name, dog in (("Emily", "Rex"), ("Frank", "Tom"))
    }
    (tmp_path / "m.json").write_text(json.dumps(users))
    run(remember, tmp_path / "m.json", "--bank", tmp_path / "bank", "--scope", "en")
    assert "4 turns remembered" in capsys.readouterr().out
    run(ask, tmp_path / "bank", "dog", "--no-answer", "--scope", "en/Frank")
    out = capsys.readouterr().out
    assert "Tom" in out and "Rex" not in out


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("missing", "x"), RequestError, "missing: there is no memory; `gemjax remember"),
        (("bank", "x", "--where", "["), RequestError, "--where is not JSON"),
        (("bank", "x", "--where", "[]"), RequestError, "must be a JSON object"),
        (("bank", "x", "--endpoint", "http://localhost:1"), RequestError, "belong together"),
        (("bank", "x", "--model", "m"), RequestError, "belong together"),
        (("bank", "x", "--date", "soon"), MemoryBankError, "soon"),
        (("bank", " "), MemoryBankError, "question must be"),
        (("bank", "x", "--prompt", "bad.json"), RequestError, "bad.json: prompt has no part 'x'"),
        (("folder", "x"), StateError, "folder"),
    ],
)
def test_bad_calls_end_in_one_line(tmp_path, monkeypatch, generator, chat, words, error, message):
    monkeypatch.chdir(tmp_path)
    run(remember, chat, "--bank", "bank")
    (tmp_path / "bad.json").write_text('{"x": 1}')
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=message):
        run(ask, *words)


def test_nothing_is_written_for_a_file_that_cannot_be_read(tmp_path, generator):
    (tmp_path / "chat.jsonl").write_text('{"text": "fine"}\n{"text": "a", "time": "soon"}\n')
    with pytest.raises(GemjaxError, match=r"turn 1: .*soon"):
        run(remember, tmp_path / "chat.jsonl", "--bank", tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


def test_an_interruption_keeps_what_is_encoded(tmp_path, capsys, monkeypatch, generator, hashing_encoder):
    (tmp_path / "chat.jsonl").write_text("".join(f'{{"text": "turn number {n}"}}\n' for n in range(600)))
    encode, calls = hashing_encoder.encode, []

    def interrupted(texts):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(texts)

    monkeypatch.setattr(hashing_encoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(remember, tmp_path / "chat.jsonl", "--bank", tmp_path / "bank")
    run(remember, tmp_path / "chat.jsonl", "--bank", tmp_path / "bank")
    assert "88 turns remembered, 512 turns known already, 600 memories in all" in capsys.readouterr().out
    assert calls == [256, 256, 88, 88]


def test_a_reranker_by_name(tmp_path, capsys, generator, chat, monkeypatch):
    class Named:
        name = "last letters"

        def __init__(self, model):
            assert model == "folder"

        def scores(self, query, texts):
            return np.array([float("Oslo" in text) for text in texts])

    monkeypatch.setattr("gemjax.encoders.cross.CrossEncoder", Named)
    bank = tmp_path / "bank"
    run(remember, chat, "--bank", bank)
    assert run(ask, bank, "What is the dog called", "--rerank", "folder", "--json", "--no-answer") == 0
    found = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert found["evidence"][-1]["rank"] == 1 and "Oslo" in found["evidence"][-1]["text"]
    assert found["note"].endswith("ranked by last letters")
