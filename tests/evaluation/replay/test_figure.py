"""The frontier's figure: where its points lie, and what the command says before it replays."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra `figures` is not installed")

from matplotlib.figure import Figure

from gemjax.cli import main
from gemjax.evaluation.replay.figure import _panel, draw
from tests.conftest import HashingEncoder
from tests.evaluation.gem.conftest import conversation, record

ROW = {"cost_ratio_mean": 0.6, "cost_ratio_se": 0.02, "refetch_ratio_mean": 0.7, "refetch_ratio_se": None}
METHODS = {
    "none": {**ROW, "cost_ratio_mean": 1.0, "fully_grounded_mean": 1.0, "fully_grounded_se": 0.0},
    "some": {**ROW, "fully_grounded_mean": 0.8, "fully_grounded_se": 0.05},
    "silent": {**ROW, "fully_grounded_mean": None, "fully_grounded_se": None},
}


@pytest.mark.parametrize(("measure", "x"), [("cost_ratio", [1.0, 0.6]), ("refetch_ratio", [0.7, 0.7])])
def test_points_are_the_means(measure: str, x: list[float]) -> None:
    axes = Figure().subplots()
    _panel(axes, METHODS, measure)
    points = [container.lines[0] for container in axes.containers]
    assert [line.get_xdata()[0] for line in points] == x and [line.get_ydata()[0] for line in points] == [1.0, 0.8]
    assert axes.get_legend_handles_labels()[1] == ["none", "some"]


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.svg"])
def test_the_ending_says_the_format(name: str, tmp_path: Path) -> None:
    draw(METHODS, tmp_path / name)
    start = (tmp_path / name).read_bytes()[:5]
    assert {"a.png": b"\x89PNG", "a.pdf": b"%PDF", "a.svg": b"<?xml"}[name] in start


def test_the_command_draws_and_refuses_what_it_cannot(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("gemjax.commands.replay.encoder_from", lambda arguments: HashingEncoder())
    run = tmp_path / "run.json"
    record(run, conversation(0, 20))
    call = ["replay", str(run), "--methods", "none,keep-last-16", "--no-vector-cache", "--json"]
    assert main([*call, "--figure", str(tmp_path / "out.svg")]) == 0
    assert set(json.loads(capsys.readouterr().out)["methods"]) == {"none", "keep-last-16"}
    assert (tmp_path / "out.svg").stat().st_size > 1_000
    for path, said in (("x.gif", "--figure must end in .png, .pdf or .svg"), ("no/where.png", "folder does not exist")):
        assert main([*call, "--figure", str(tmp_path / path)]) == 2
        assert said in capsys.readouterr().err
