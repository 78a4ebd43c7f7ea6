"""Replay recorded agent runs through the compressor and its rivals, and account for what would have been sent."""

from gemjax.evaluation.replay.accounting import Ledger, Prices, Sizer
from gemjax.evaluation.replay.loading import Loaded, load, read
from gemjax.evaluation.replay.moment import Method, Moment, Reference
from gemjax.evaluation.replay.replay import Outcome, Replay, TrajectoryOutcome, methods_named
from gemjax.evaluation.replay.report import Report
from gemjax.evaluation.replay.running import run
from gemjax.evaluation.replay.tokens import EstimatedTokens, TokenCounter, TokenizerTokens, default_counter
from gemjax.evaluation.replay.trajectory import Trajectory, Turn, requests

__all__ = [
    "EstimatedTokens",
    "Ledger",
    "Loaded",
    "Method",
    "Moment",
    "Outcome",
    "Prices",
    "Reference",
    "Replay",
    "Report",
    "Sizer",
    "TokenCounter",
    "TokenizerTokens",
    "Trajectory",
    "TrajectoryOutcome",
    "Turn",
    "default_counter",
    "load",
    "methods_named",
    "read",
    "requests",
    "run",
]
