"""Files of a run: raw values of every checkpoint, the figure, and a page of HTML in the style of `gemjax eval gem`."""

import importlib.util
import json
from functools import partial
from pathlib import Path

from gemjax.evaluation.gem.report import Write, attempt_write, html_page
from gemjax.evaluation.next_action.run import NextAction


def save(result: NextAction, folder: Path, write: Write) -> list[str]:
    """Write `next-action.json`, `next-action.html` and the figure into a folder.

    Returns: what could not be written, one line a file: a full disk costs files, not the report on the screen.
    """
    troubles: list[str] = []
    attempt = partial(attempt_write, troubles)
    attempt(folder, lambda: folder.mkdir(parents=True, exist_ok=True))
    if troubles:
        return troubles
    values, page = folder / "next-action.json", folder / "next-action.html"
    attempt(values, lambda: write(values, json.dumps(result.with_raw_values(), allow_nan=False) + "\n"))
    pictures: list[Path] = []
    if importlib.util.find_spec("matplotlib") is None:
        troubles.append("figure: not drawn, matplotlib is not installed (pip install 'gemjax[figures]')")
    else:
        from gemjax.evaluation.next_action.figure import draw

        attempt(folder, lambda: pictures.extend(draw(result.tables, folder)))
    title = "Next-action loss on recorded trajectories"
    attempt(page, lambda: write(page, html_page(result, pictures, troubles, title=title)))
    return troubles
