"""From paths to the tables: draws checkpoints that fit the window, selects, and reads each history with the model."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.gem.checkpoints import MIN_BLOCKS, Checkpoints, collect, moments
from gemjax.evaluation.gem.grounding_tables import grounding_of
from gemjax.evaluation.gem.run import Evaluation
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import SELECTORS, Values, matched, selections
from gemjax.evaluation.gem.table import Table
from gemjax.evaluation.next_action.losses import Losses
from gemjax.evaluation.next_action.prompts import ACTION_TOKENS, SMALLEST, Prompts
from gemjax.evaluation.next_action.sampling import stratified
from gemjax.evaluation.next_action.tables import TABLES, Measured
from gemjax.evaluation.replay import RecordedTurn, Trajectory, load
from gemjax.history.blocks import Parsed
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES
from gemjax.models.language import LanguageModel
from gemjax.wording import counted

SAMPLE = 50
BLOCK_TOKENS = 96
WINDOW = 8192
"""Most tokens that are read at once, if the model has that many positions."""
Progress = Callable[[str, int, int], None]
_WHOSE = {"paper": "the paper's rules", "default": "the default rules"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        sample: how many checkpoints.
        seed: of the draw.
        count: how many blocks every selector keeps: as many as the `"paper"` or the `"default"` rules do, or a number.
        window: most tokens of a full history with its action; None: 8192, or the model's positions if fewer.
        block_tokens: most tokens of a block or message, see `Prompts`.
        use_goal: see `evaluate` of `gemjax.evaluation.gem.run`.

    Raises:
        ConfigError: a value is out of range.
    """

    sample: int = SAMPLE
    seed: int = 0
    count: str | int = "paper"
    window: int | None = None
    block_tokens: int = BLOCK_TOKENS
    use_goal: bool = False

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise ConfigError(f"sample = {self.sample}; expected at least 1 checkpoint")
        if self.count not in ("paper", "default") and not (isinstance(self.count, int) and self.count >= 1):
            raise ConfigError(f"count = {self.count!r}; expected paper, default or a number of blocks, at least 1")
        if self.window is not None and self.window < 2:
            raise ConfigError(f"window = {self.window}; expected at least 2 tokens")
        if self.block_tokens < SMALLEST:
            raise ConfigError(f"block_tokens = {self.block_tokens}; expected at least {SMALLEST}")

    def window_of(self, model: LanguageModel) -> int:
        """Raises `ConfigError` for a window that the model cannot read."""
        most = model.config.max_position_embeddings
        window = min(WINDOW, most) if self.window is None else self.window
        if not 2 <= window <= most:
            raise ConfigError(f"window = {window}; {model.name or 'this model'} reads 2 to {most} tokens at once")
        return window


@dataclasses.dataclass(frozen=True)
class NextAction(Evaluation):
    """The tables N.1 to N.3, and what they were made with."""

    model: str = ""
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything but the raw values, as JSON values."""
        return {"model": self.model, "settings": self.settings, **super().to_json()}

    def with_raw_values(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {**self.to_json(), "tables": [table.to_json() for table in self.tables]}


@dataclasses.dataclass(frozen=True)
class _Candidates:
    """The checkpoints that may be drawn, by trajectory, and why the others may not."""

    moments: dict[str, list[tuple[RecordedTurn, Parsed]]]
    fitting: dict[str, list[int]]
    total: int
    too_long: int
    too_short: int


@dataclasses.dataclass(frozen=True)
class _Job:
    """One checkpoint's prompts by history (`full`, `none`, selectors), and the action that follows each."""

    name: str
    row: int
    prompts: dict[str, np.ndarray]
    action: np.ndarray
    masks: dict[str, np.ndarray]


def evaluate(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    encoder: Any,
    model: LanguageModel,
    settings: Settings | None = None,
    *,
    disk: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> NextAction:
    """Measure what selections cost the prediction of recorded next actions.

    Args:
        paths: files and folders.
        encoder: a `CachedEncoder`; with `disk=` an interrupted run goes on where it was.
        model: reads the histories.
        settings: what is measured.
        disk: a folder where losses are kept for the next run.
        progress: called with what is being done, how much of it is done, and how much there is.

    Returns: tables over the checkpoints that were finished; `KeyboardInterrupt` ends the work and keeps them.

    Raises: `RequestError` if a path does not exist; `ConfigError` for settings that the model cannot serve;
        `EncoderError`, `WeightsError` from the encoder.
    """
    settings = settings or Settings()
    report = progress or (lambda what, done, total: None)
    window = settings.window_of(model)
    prompts = Prompts(model, settings.block_tokens)
    losses = Losses(model, disk)
    loaded = load(paths)
    footer = [f"not read: {path}: {reason}" for path, reason in loaded.skipped]
    jobs: list[_Job] = []
    done: list[tuple[_Job, dict[str, float]]] = []
    study = None
    interrupted = False
    try:
        candidates = _candidates(loaded.trajectories, prompts, settings, window, footer, report)
        footer += _left_out(candidates, settings, window)
        drawn, collected, interrupted = _draw(loaded.trajectories, candidates, encoder, settings, footer, report)
        if drawn and not interrupted:
            study, jobs = _jobs(drawn, collected, candidates, prompts, settings)
            _measure(jobs, losses, report, done)
    except KeyboardInterrupt:
        interrupted = True
    tables: list[Table] = []
    if done and study is not None:
        how = _how(model, settings, window)
        measured = dataclasses.replace(_measured(done, study, settings), how=how)
        tables = [table for make in TABLES for table in make(measured)]
    if interrupted:
        of = f"{len(done)} of " if jobs else ""
        footer.append(
            f"interrupted after {of}{counted(len(jobs), 'checkpoint')}; run again to go on, vectors and losses are kept"
        )
    elif not done:
        footer.append(
            f"no checkpoint was measured ({MIN_BLOCKS} complete blocks and a tool call after them are needed)"
        )
    names = list(dict.fromkeys(job.name for job, _ in done))
    shown = dataclasses.asdict(settings) | {"window": window, "action_tokens": ACTION_TOKENS, "measured": len(done)}
    return NextAction(tables, encoder.name, names, footer, interrupted, model.name, shown)


def _how(model: LanguageModel, settings: Settings, window: int) -> str:
    wanted = settings.count
    kept = counted(wanted, "block") if isinstance(wanted, int) else f"as many blocks as {_WHOSE[wanted]} do"
    return (
        f"Read by {model.name}: full histories of at most {window:,} tokens, at most {settings.block_tokens} of a "
        f"block or message, and the action's first {ACTION_TOKENS}. Every selector keeps {kept}."
    )


def _candidates(
    trajectories: Sequence[Trajectory],
    prompts: Prompts,
    settings: Settings,
    window: int,
    footer: list[str],
    report: Progress,
) -> _Candidates:
    found: dict[str, list[tuple[RecordedTurn, Parsed]]] = {}
    fitting: dict[str, list[int]] = {}
    total = too_long = too_short = 0
    for index, trajectory in enumerate(trajectories):
        report(f"reading {trajectory.id}", index, len(trajectories))
        blocks = len(trajectory.parsed.blocks)
        here = moments(trajectory) if blocks >= MIN_BLOCKS else []
        if not here:
            few = f"{blocks} complete blocks, fewer than {MIN_BLOCKS}"
            late = f"no tool call after the first {MIN_BLOCKS} complete blocks"
            footer.append(f"left out: {trajectory.source}: {few if blocks < MIN_BLOCKS else late}")
            continue
        rows = []
        for row, (turn, parsed) in enumerate(here):
            if isinstance(settings.count, int) and len(parsed.blocks) <= settings.count:
                too_short += 1
            elif prompts.full_length(parsed) + len(prompts.action(turn)) > window:
                too_long += 1
            else:
                rows.append(row)
        total += len(here)
        if rows:
            found[trajectory.id], fitting[trajectory.id] = here, rows
        else:
            footer.append(f"left out: {trajectory.source}: none of its {counted(len(here), 'checkpoint')} can be used")
    return _Candidates(found, fitting, total, too_long, too_short)


def _left_out(candidates: _Candidates, settings: Settings, window: int) -> list[str]:
    lines = []
    if candidates.too_long:
        lines.append(
            f"{candidates.too_long:,} of {counted(candidates.total, 'checkpoint')} were not drawn from: their full "
            f"history takes more than {window:,} tokens, with at most {settings.block_tokens} a block; so the sample "
            "is of the earlier part of long runs"
        )
    if candidates.too_short:
        blocks = counted(settings.count, "block") if isinstance(settings.count, int) else f"{settings.count} blocks"
        lines.append(
            f"{candidates.too_short:,} of {counted(candidates.total, 'checkpoint')} were not drawn from: no more than "
            f"{blocks}, so that every selector keeps all of them"
        )
    usable = sum(map(len, candidates.fitting.values()))
    if 0 < usable < settings.sample:
        lines.append(f"{settings.sample} checkpoints were asked for, {usable} can be measured")
    return lines


def _draw(
    trajectories: Sequence[Trajectory],
    candidates: _Candidates,
    encoder: Any,
    settings: Settings,
    footer: list[str],
    report: Progress,
) -> tuple[list[tuple[str, int]], dict[str, Checkpoints], bool]:
    """A sample, and the vectors of its trajectories. What cannot be encoded is named, and others take its place."""
    by_id = {t.id: t for t in trajectories}
    fitting = dict(candidates.fitting)
    collected: dict[str, Checkpoints] = {}
    while True:
        drawn = stratified(fitting, settings.sample, settings.seed)
        missing = [name for name in dict.fromkeys(name for name, _ in drawn) if name not in collected]
        if not missing:
            return drawn, collected, False
        got = collect(
            [by_id[name] for name in missing],
            encoder,
            (*PAPER_RULES, *DEFAULT_RULES),
            partial(_tick, report, count(1), len(missing)),
            use_goal=settings.use_goal,
        )
        if got.interrupted:
            return [], {}, True
        collected |= {t.id: t for t in got.trajectories}
        footer += [f"left out: {source}: {reason}" for source, reason in got.left_out]
        for name in missing:
            if name not in collected:
                del fitting[name]


def _tick(report: Progress, done: Iterator[int], total: int, name: str) -> None:
    report(f"encoding {name}", next(done), total)


def _jobs(
    drawn: Sequence[tuple[str, int]],
    collected: Mapping[str, Checkpoints],
    candidates: _Candidates,
    prompts: Prompts,
    settings: Settings,
) -> tuple[Study, list[_Job]]:
    """The drawn checkpoints by themselves, as Table 1 treats them, and each one's prompts in the order of the draw."""
    rows: dict[str, list[int]] = {}
    for name, row in drawn:
        rows.setdefault(name, []).append(row)
    rows = {name: sorted(of) for name, of in rows.items()}
    study = Study([collected[name].only(of) for name, of in rows.items()])
    masks = selections(study.trajectories, _counts(study, settings.count), study.paper, study.default)
    where = {(name, row): (t, c) for t, (name, of) in enumerate(rows.items()) for c, row in enumerate(of)}
    jobs = []
    for name, row in drawn:
        turn, parsed = candidates.moments[name][row]
        t, c = where[name, row]
        n = len(parsed.blocks)
        kept = {"full": np.ones(n, bool), "none": np.zeros(n, bool), **{s: masks[s][t][c, :n] for s in SELECTORS}}
        made = {history: prompts.prompt(parsed, mask) for history, mask in kept.items()}
        # The flat order of the study: trajectory by trajectory.
        flat = sum(len(x.counts) for x in study.trajectories[:t]) + c
        jobs.append(_Job(name, flat, made, prompts.action(turn), {s: kept[s] for s in SELECTORS}))
    return study, jobs


def _counts(study: Study, wanted: str | int) -> list[np.ndarray]:
    if isinstance(wanted, int):
        return [np.full(len(t.counts), wanted, np.int32) for t in study.trajectories]
    return study.split(study.own[wanted]["count"].astype(np.int32))


def _measure(jobs: Sequence[_Job], losses: Losses, report: Progress, done: list[tuple[_Job, dict[str, float]]]) -> None:
    """Adds each finished job to `done`, so that what is finished is there when the user stops the rest."""
    unread = [{h: len(p) for h, p in job.prompts.items() if not losses.known(p, job.action)} for job in jobs]
    total = sum(sum(lengths.values()) for lengths in unread)
    read = 0
    for number, (job, lengths) in enumerate(zip(jobs, unread, strict=True), 1):
        results = {}
        for history, prompt in job.prompts.items():
            report(f"checkpoint {number} of {len(jobs)}", read, total)
            results[history] = losses.loss(prompt, job.action)
            read += lengths.get(history, 0)
        done.append((job, results))
    report("tables", total, total)


def _cheap(study: Study, wanted: str | int) -> dict[str, Values]:
    if wanted == "paper":
        return study.at_paper_count
    if wanted == "default":
        return study.at_default_count
    return matched(study.trajectories, _counts(study, wanted), study.paper, study.default)


def _measured(done: Sequence[tuple[_Job, dict[str, float]]], study: Study, settings: Settings) -> Measured:
    ordered = sorted(done, key=lambda pair: pair[0].row)
    at = [job.row for job, _ in ordered]
    values = _cheap(study, settings.count)
    given = [(g, n) for t in study.trajectories for g, n in zip(t.given, t.needs, strict=True)]
    found = {name: [grounding_of(job.masks[name], *given[job.row])[0] for job, _ in ordered] for name in SELECTORS}
    losses = {h: np.array([results[h] for _, results in ordered]) for h in ("full", "none", *SELECTORS)}
    return Measured(
        names=[t.id for t in study.trajectories],
        groups=study.groups[at],
        blocks=study.sizes[at],
        kept=np.array([int(job.masks["paper"].sum()) for job, _ in ordered]),
        tokens=np.array([len(job.action) for job, _ in ordered]),
        full=losses["full"],
        none=losses["none"],
        losses={name: losses[name] for name in SELECTORS},
        latest={name: np.array([bool(job.masks[name][-1]) for job, _ in ordered]) for name in SELECTORS},
        cheap={
            name: {m: v[at] for m, v in values[name].items()} | {"grounding": np.array(found[name], np.float64)}
            for name in SELECTORS
        },
    )
