"""`run`: from paths to a report, with a progress bar, and with what is finished when the user stops it."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gemjax.errors import GemjaxError, RequestError
from gemjax.evaluation.replay.accounting import Prices
from gemjax.evaluation.replay.loading import load
from gemjax.evaluation.replay.moment import Method
from gemjax.evaluation.replay.refetch import Refetch
from gemjax.evaluation.replay.replay import ActionView, Replay, TrajectoryOutcome, methods_named
from gemjax.evaluation.replay.report import Report
from gemjax.evaluation.replay.tokens import TokenCounter, default_counter
from gemjax.evaluation.replay.trajectory import Trajectory, requests


def run(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    methods: Sequence[Method | str] | None = None,
    delta: float | None = None,
    prices: Prices | None = None,
    encoder: Any = None,
    counter: TokenCounter | None = None,
    progress: bool = False,
    *,
    action_view: ActionView = "action",
    use_goal: bool = False,
    refetch: Refetch | None = None,
    strict: bool = False,
    disk: str | os.PathLike[str] | None = None,
) -> Report:
    """Replay recorded agents through every method and account for what each would have sent.

    Args:
        paths: files and folders.
        methods: names (see `methods_named`) and objects of your own; None for all that are known.
        delta: overrides the share that the two policies may remove.
        prices: None for read 0.1, write 1.25, uncached 1.
        encoder: an `Encoder`, a callable, or None for the default one.
        counter: counts tokens; None for an installed tokenizer or a stated estimate.
        progress: show a progress bar on standard error.
        action_view, use_goal, refetch, strict: see `Replay`.
        disk: folder for vectors, so that the next replay encodes nothing.

    Returns: the report. `KeyboardInterrupt` ends the replay and not the report, which then says so.

    Raises: `RequestError` if a path does not exist or no file could be read; `ConfigError` for bad settings;
        `EncoderError`, `WeightsError` from the encoder.
    """
    prices = prices or Prices()
    chosen = _methods(methods, prices, delta)
    loaded = load(paths)
    if not loaded.trajectories:
        first = f": {loaded.skipped[0][0]}: {loaded.skipped[0][1]}" if loaded.skipped else ""
        raise RequestError(f"no recorded trajectory was found{first}")
    cached = _encoder(encoder, disk)
    counter = counter or default_counter()
    replay = Replay(
        chosen, cached, counter, prices, action_view=action_view, use_goal=use_goal, refetch=refetch, strict=strict
    )
    outcomes, failed, interrupted = _replay_all(replay, loaded.trajectories, progress)
    return Report(
        [m.name for m in chosen],
        outcomes,
        loaded.skipped + failed,
        prices,
        counter.name,
        cached.name,
        action_view,
        interrupted,
    )


def _methods(given: Sequence[Method | str] | None, prices: Prices, delta: float | None) -> list[Method]:
    if given is None:
        return methods_named(None, prices, delta)
    return [m for one in given for m in (methods_named([one], prices, delta) if isinstance(one, str) else [one])]


def _encoder(encoder: Any, disk: str | os.PathLike[str] | None) -> Any:
    from gemjax.encoders import CachedEncoder, as_encoder

    made = as_encoder(encoder)
    return made if isinstance(made, CachedEncoder) else CachedEncoder(made, disk=disk)


def _replay_all(
    replay: Replay, trajectories: list[Trajectory], progress: bool
) -> tuple[list[TrajectoryOutcome], list[tuple[str, str]], bool]:
    """Outcomes, what could not be replayed and why, and whether the user stopped it."""
    outcomes: list[TrajectoryOutcome] = []
    failed: list[tuple[str, str]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = progress and console.is_terminal
    with Progress(*columns, disable=not shown, transient=True, console=console) as bar:
        counts = [sum(1 for _ in requests(t)) for t in trajectories] if shown else []
        task = bar.add_task("requests", total=sum(counts) or None)
        try:
            for t in trajectories:
                bar.update(task, description=t.id[-40:])
                try:
                    outcomes.append(replay.run(t, lambda: bar.advance(task)))
                except GemjaxError:
                    raise
                except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                    # One odd file must not end a replay of many.
                    failed.append((t.source, f"{t.id} could not be replayed ({type(error).__name__}: {error})"))
        except KeyboardInterrupt:
            return outcomes, failed, True
    return outcomes, failed, False
