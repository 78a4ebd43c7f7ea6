"""`gemjax index`, `search` and `eval locomo`, run in this process on a bank of hashed words."""

import argparse
import json

import pytest

from gemjax.commands import eval as eval_command
from gemjax.commands import index, search
from gemjax.errors import GemjaxError, MemoryBankError, RequestError, StateError
from tests.evaluation.conftest import tiny_path

__all__ = ["tiny_path"]


@pytest.fixture(autouse=True)
def encoder(monkeypatch, hashing_encoder):
    for module in (index, search, eval_command):
        monkeypatch.setattr(module, "encoder_from", lambda arguments: hashing_encoder)


def run(module, *words):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.run(parser.parse_args([*map(str, words), "--no-compilation-cache"]))


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_index_then_search(tmp_path, capsys):
    lines = [{"id": f"m{i}", "text": f"word{i} thing{i}", "metadata": {"odd": i % 2 == 1}} for i in range(12)]
    assert run(index, write(tmp_path / "a.jsonl", *lines), "-o", tmp_path / "bank", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "bank": str(tmp_path / "bank"), "added": 12, "memories": 12, "dim": 64,
    }  # fmt: skip
    assert run(search, tmp_path / "bank", "thing5", "-k", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "fused" and len(found["hits"]) == 2
    assert found["hits"][0]["id"] == "m5" and found["hits"][0]["metadata"] == {"odd": True}
    assert run(search, tmp_path / "bank", "thing5", "--where", '{"odd": false}', "--metric", "cosine", "--json") == 0
    assert all(not hit["metadata"]["odd"] for hit in json.loads(capsys.readouterr().out)["hits"])
    assert run(search, tmp_path / "bank", "thing5", "--alpha", "0.2", "--explain") == 0
    out = capsys.readouterr().out
    assert "m5" in out and "condition number" in out and "0.2 *" in out


def test_append_and_replace(tmp_path, capsys):
    bank = tmp_path / "bank"
    run(index, write(tmp_path / "a.jsonl", {"text": "one"}, {"text": "two", "id": 7}), "-o", bank)
    run(index, write(tmp_path / "b.jsonl", {"text": "three"}), "-o", bank, "--append")
    assert "1 memory added, 3 in all" in capsys.readouterr().out
    run(search, bank, "three")
    assert "note: cosine only: 3 memories" in capsys.readouterr().out
    run(index, write(tmp_path / "b.jsonl", {"text": "three"}), "-o", bank, "--preset", "tuned")
    assert "1 in all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ('{"id": 1}', "line 2: expected an object with a non-empty string `text`"),
        ('{"text": " "}', "line 2: expected"),
        ('{"text": "a", "tags": 1}', "line 2: unknown field 'tags'"),
        ('{"text": "a", "id": 1.5}', "line 2: id must be"),
        ('{"text": "a", "id": "x"}', "line 2: id 'x' was already used in line 1"),
        ('{"text": "a", "metadata": 3}', "line 2: metadata must be an object"),
    ],
)
def test_bad_lines_are_named_and_nothing_is_written(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"text": "fine", "id": "x"}\n' + line + "\n")
    with pytest.raises(GemjaxError, match=message):
        run(index, tmp_path / "a.jsonl", "-o", tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_a_line_makes_no_bank(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(GemjaxError, match=r"a\.jsonl is empty: expected one JSON object a line"):
        run(index, tmp_path / "a.jsonl", "-o", tmp_path / "bank")
    assert not (tmp_path / "bank").exists()


def test_bad_searches(tmp_path):
    with pytest.raises(StateError, match="holds no memory bank"):
        run(search, tmp_path, "x")
    run(index, write(tmp_path / "a.jsonl", {"text": "one"}), "-o", tmp_path / "bank")
    with pytest.raises(MemoryBankError, match="non-empty"):
        run(search, tmp_path / "bank", " ")
    with pytest.raises(MemoryBankError, match="k must be"):
        run(search, tmp_path / "bank", "x", "-k", "0")
    for bad in ("{", "[]"):
        with pytest.raises(RequestError, match="--where"):
            run(search, tmp_path / "bank", "x", "--where", bad)


def test_an_interrupted_index_keeps_what_is_encoded(tmp_path, monkeypatch, hashing_encoder, capsys):
    monkeypatch.setattr(index, "BATCH", 2)
    real = hashing_encoder.encode
    monkeypatch.setattr(
        hashing_encoder,
        "encode",
        lambda texts: real(texts) if "stop" not in texts else (_ for _ in ()).throw(KeyboardInterrupt),
    )
    lines = [{"text": "a"}, {"text": "b"}, {"text": "stop"}]
    with pytest.raises(KeyboardInterrupt):
        run(index, write(tmp_path / "a.jsonl", *lines), "-o", tmp_path / "bank")
    assert "2 memories added" in capsys.readouterr().out


def test_eval_locomo(tiny_path, tmp_path, capsys):
    out = tmp_path / "report.json"
    words = ("locomo", tiny_path, "--methods", "cosine,fused", "--resamples", "20")
    assert run_eval(*words, "--json", "-o", out) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["methods"]["cosine"]["hit@10"]["cleaned"]["micro"] == 1.0
    assert printed["encoder"] == "hashing-64"
    assert json.loads(out.read_text())["data"]["questions"] == 14
    assert run_eval(*words) == 0
    shown = capsys.readouterr().out
    assert ("cosine" in shown and "4 single-hop" in shown.replace("\n", " ")) or "single" in shown


def run_eval(*words):
    parser = argparse.ArgumentParser()
    eval_command.add_arguments(parser)
    return eval_command.run(parser.parse_args([*map(str, words), "--no-compilation-cache"]))
