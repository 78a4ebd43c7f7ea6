"""From paths to the tables: which are known, what each needs, and what happens when one is stopped or has no data."""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemjax.errors import ConfigError
from gemjax.evaluation.gem.checkpoints import MIN_BLOCKS, collect
from gemjax.evaluation.gem.composition import replayed, table_e1
from gemjax.evaluation.gem.grounding_tables import table_g
from gemjax.evaluation.gem.replacement import table_2
from gemjax.evaluation.gem.selection_tables import Study, table_1, table_d1, table_d2, table_d3, table_d4
from gemjax.evaluation.gem.spectra import figure_3, table_c1
from gemjax.evaluation.gem.table import Table
from gemjax.evaluation.replay import Prices, Trajectory, default_counter, load, methods_named
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES
from gemjax.wording import counted

TABLES: dict[str, Callable[[Study], list[Table]]] = {
    "C.1": table_c1,
    "1": table_1,
    "Fig3": figure_3,
    "2": table_2,
    "G.1": table_g,
    "D.1": table_d1,
    "D.2": table_d2,
    "D.3": table_d3,
    "D.4": table_d4,
}
REPLAYED = "E.1"
ALIASES = {"fig.3": "Fig3", "fig3": "Fig3", "3": "Fig3", "c.3": "2", "fig1": "C.1", "fig2": "1", "fig5": "D.3"}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """All tables that were finished, and a footer that says what was left out and why."""

    tables: list[Table]
    encoder: str
    trajectories: list[str]
    footer: list[str]
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Everything but the raw values, as JSON values."""
        tables = []
        for table in self.tables:
            entry = table.to_json()
            del entry["raw"]
            tables.append(entry)
        return {
            "encoder": self.encoder,
            "trajectories": self.trajectories,
            "tables": tables,
            "footer": self.footer,
            "interrupted": self.interrupted,
        }


def chosen_tables(text: str) -> list[str]:
    """`all`, or names separated by commas, in the order of the report. Raises `ConfigError` for an unknown one."""
    known = [*TABLES, REPLAYED]
    if text.strip().lower() == "all":
        return known
    lower = {name.lower(): name for name in known} | ALIASES
    given = [part.strip().lower() for part in text.split(",") if part.strip()]
    for name in given:
        if name not in lower:
            raise ConfigError(f"unknown table {name!r}; known: {', '.join(known)}")
    if not given:
        raise ConfigError(f"no table given; known: {', '.join(known)}")
    asked = {lower[name] for name in given}
    return [name for name in known if name in asked]


def evaluate(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    tables: Sequence[str],
    encoder: Any,
    *,
    use_goal: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Make tables from recorded trajectories.

    Args:
        paths: files and folders.
        tables: names as `chosen_tables` gives them.
        encoder: a `CachedEncoder`; with `disk=` an interrupted run goes on where it was.
        use_goal: the goal that a recording states, instead of the one the compressor finds in the request.
        progress: called with what is being done, how much of it is done, and how much there is.

    Returns: the finished tables; `KeyboardInterrupt` ends the work and keeps them.

    Raises: `RequestError` if a path does not exist; `EncoderError`, `WeightsError` from the encoder.
    """
    report = progress or (lambda what, done, total: None)
    loaded = load(paths)
    footer = [f"not read: {path}: {reason}" for path, reason in loaded.skipped]
    formats = Counter(t.format for t in loaded.trajectories)
    if len(formats) > 1:
        mixed = ", ".join(f"{n} {name}" for name, n in sorted(formats.items()))
        footer.append(f"mixed wire formats, read together: {mixed}")
    footer += [f"{t.source}: {note}" for t in loaded.trajectories for note in t.notes]
    total = len(loaded.trajectories)
    done = iter(range(1, total + 1))
    got = collect(
        loaded.trajectories,
        encoder,
        (*PAPER_RULES, *DEFAULT_RULES),
        lambda name: report(f"reading {name}", next(done), total),
        use_goal=use_goal,
    )
    footer += [f"left out: {source}: {reason}" for source, reason in got.left_out]
    for t in got.trajectories:
        if t.refused:
            footer.append(
                f"{t.source}: {counted(t.refused, 'checkpoint')} in requests that a provider would refuse as recorded; "
                "kept, as this is a measure of selections and nothing is sent"
            )
    names = [t.id for t in got.trajectories]
    finished: list[Table] = []
    interrupted = got.interrupted
    if not got.trajectories:
        footer.append(f"no trajectory has a checkpoint ({MIN_BLOCKS} complete blocks and a tool call after them)")
    else:
        study = Study(got.trajectories)
        try:
            for index, name in enumerate(tables if not interrupted else ()):
                report(f"table {name}", index, len(tables))
                if name == REPLAYED:
                    kept = {t.source for t in got.trajectories}
                    used = [t for t in loaded.trajectories if t.source in kept and t.id in set(names)]
                    finished += table_e1(_replay(used, encoder, report))
                else:
                    finished += TABLES[name](study)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        footer.append(f"interrupted after {counted(len(finished), 'table')}; run again to go on, vectors are kept")
    return Evaluation(finished, encoder.name, names, footer, interrupted)


def _replay(trajectories: list[Trajectory], encoder: Any, report: Callable[[str, int, int], None]) -> Any:
    done = iter(range(1, len(trajectories) + 1))
    return replayed(
        trajectories,
        encoder,
        default_counter(),
        methods_named(None, Prices()),
        lambda name: report(f"replaying {name}", next(done), len(trajectories)),
    )
