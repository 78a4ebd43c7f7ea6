"""The command end to end: numbers agree everywhere, and bad input is named, not dropped."""

import errno
import json
import re

import numpy as np
import pytest

from gemjax.encoders import CachedEncoder
from gemjax.errors import ConfigError, EncoderError
from gemjax.evaluation.gem.report import file_name, html_page, print_report, save
from gemjax.evaluation.gem.run import TABLES, chosen_tables, evaluate
from tests.conftest import HashingEncoder
from tests.evaluation.gem.conftest import Failing, conversation, record

FAST = ["C.1", "1", "D.1"]


def write(path, text):
    path.write_text(text, "utf-8")


def test_every_table_and_every_figure(runs, tmp_path):
    result = evaluate(runs, [*TABLES], CachedEncoder(HashingEncoder()))
    assert not result.footer
    assert {t.name for t in result.tables} >= set(TABLES)
    out = tmp_path / "out"
    assert save(result, out, write) == []
    pngs = sorted(p.stem for p in out.glob("*.png"))
    assert len(pngs) == 5 and pngs == sorted(p.stem for p in out.glob("*.pdf"))
    page = (out / "report.html").read_text()
    assert "<script" not in page and not re.search(r"(src|href)='(?!data:|#)", page)
    for table in result.tables:
        saved = json.loads((out / file_name(table)).read_text())
        section = page.split(f"id='table-{table.name}'")[1].split("<h2")[0]
        for row, kept in zip(table.rows, saved["rows"], strict=True):
            line = section.split(f"<td>{row.label.replace('>', '&gt;').replace(chr(39), '&#x27;')}</td>")[1].split(
                "</tr>"
            )[0]
            for cell, number in zip(row.cells, kept["cells"], strict=True):
                assert number["value"] == cell.value
                assert f"<td>{cell.shown()}" in line


def test_pooled_means_follow_from_the_raw_values(runs):
    result = evaluate(runs, ["1"], CachedEncoder(HashingEncoder()))
    table = next(t for t in result.tables if t.name == "1").to_json()
    raw = table["raw"]["values"]
    at = table["columns"].index("T3")
    shown = {r["label"]: r["cells"][at]["value"] for r in table["rows"]}
    assert shown["recency (pooled)"] == pytest.approx(np.mean(raw["recency"]["T3"]), abs=1e-6)
    groups = np.array(table["raw"]["trajectory"])
    means = [np.mean(np.array(raw["recency"]["T3"])[groups == g]) for g in range(3)]
    assert shown["recency"] == pytest.approx(np.mean(means), abs=1e-6)


def test_bad_files_are_named_with_their_reason(runs, capsys):
    record(runs / "short.json", conversation(9, 5))
    record(runs / "ends.json", conversation(9, 16))
    (runs / "other.json").write_text('{"a": 1}')
    (runs / "broken.json").write_text("{")
    anthropic = [{"role": "user", "content": "go"}]
    for i in range(18):
        anthropic.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{i}", "name": "ls", "input": {"at": i}}]}
        )
        anthropic.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"file {i}"}]}
        )
    (runs / "claude.json").write_text(json.dumps({"messages": anthropic}))
    result = evaluate(runs, ["D.1"], CachedEncoder(HashingEncoder()))
    text = "\n".join(result.footer)
    for name, reason in (
        ("short.json", "fewer than 16"),
        ("ends.json", "no tool call after"),
        ("other.json", "not a recording"),
        ("broken.json", "not JSON"),
    ):
        assert re.search(rf"{name}.*{reason}", text), text
    assert "mixed wire formats" in text and len(result.trajectories) == 4
    assert "broken.json" in html_page(result, [])
    from rich.console import Console

    print_report(result, Console(width=200))
    assert "short.json" in capsys.readouterr().out


def test_nothing_usable(tmp_path):
    record(tmp_path / "short.json", conversation(0, 3))
    result = evaluate(tmp_path, FAST, CachedEncoder(HashingEncoder()))
    assert (
        not result.tables and "short.json" in result.footer[0] and "no trajectory has a checkpoint" in result.footer[-1]
    )
    assert "short.json" in html_page(result, [])


def test_identical_vectors_give_tables_and_are_named(tmp_path):
    messages = conversation(0, 24, same=True)
    record(tmp_path / "same.json", messages)
    constant = CachedEncoder(Constant())
    result = evaluate(tmp_path, [*TABLES], constant)
    c1 = next(t for t in result.tables if t.name == "C.1")
    assert any("identical" in note and "same" in note for note in c1.notes)
    one = next(t for t in result.tables if t.name == "1")
    assert one.rows[0].cells[one.columns.index("E")].value == pytest.approx(1)
    json.dumps([t.to_json() for t in result.tables], allow_nan=False)
    html_page(result, [])


class Constant:
    name = "constant"
    dim = 8

    def encode(self, texts):
        return np.tile(np.eye(1, 8, dtype=np.float32), (len(texts), 1))


class Zero(Constant):
    name = "zero"

    def encode(self, texts):
        return np.zeros((len(texts), 8), np.float32)


def test_vectors_without_direction(runs):
    result = evaluate(runs, ["1"], CachedEncoder(Zero()))
    assert not result.tables and sum("no direction" in line or "zero vectors" in line for line in result.footer) == 3


def test_an_encoder_that_fails_once_costs_one_trajectory(runs):
    result = evaluate(runs, ["D.1"], CachedEncoder(Failing(EncoderError("busy"))))
    assert len(result.trajectories) == 2 and any("busy" in line for line in result.footer)


def test_an_interrupted_run_keeps_what_it_has_and_goes_on_from_there(runs, tmp_path):
    disk = tmp_path / "vectors"
    stopped = evaluate(runs, ["D.1"], CachedEncoder(Failing(KeyboardInterrupt()), disk=disk))
    assert stopped.interrupted and len(stopped.trajectories) == 1
    second = HashingEncoder()
    result = evaluate(runs, ["D.1"], CachedEncoder(second, disk=disk))
    fresh = HashingEncoder()
    evaluate(runs, ["D.1"], CachedEncoder(fresh))
    assert not result.interrupted and 0 < second.texts < fresh.texts


def test_a_full_disk_costs_files_and_not_the_report(runs, tmp_path):
    result = evaluate(runs, ["D.1"], CachedEncoder(HashingEncoder()))

    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    lines = save(result, tmp_path / "out", full)
    assert len(lines) == 2 and all("No space left" in line for line in lines)


def test_table_names():
    assert chosen_tables("all") == [*TABLES, "E.1"]
    assert chosen_tables("d.4, 1,fig.3") == ["1", "Fig3", "D.4"]
    for bad in ("7", ""):
        with pytest.raises(ConfigError, match=r"known: C\.1"):
            chosen_tables(bad)
