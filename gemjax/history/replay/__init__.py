"""Replay recorded agent runs through the compressor and its rivals, and account for what would have been sent."""

from gemjax.history.replay.accounting import Ledger, Prices, Sizer
from gemjax.history.replay.loading import Loaded, load, read
from gemjax.history.replay.moment import Method, Moment, Reference
from gemjax.history.replay.replay import Outcome, Replay, TrajectoryOutcome, methods_named
from gemjax.history.replay.report import Report
from gemjax.history.replay.running import run
from gemjax.history.replay.tokens import EstimatedTokens, TokenCounter, TokenizerTokens, default_counter
from gemjax.history.replay.trajectory import Trajectory, Turn, requests

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
