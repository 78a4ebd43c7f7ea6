"""Replay recorded agent runs through the compressor and its rivals, and account for what would have been sent."""

from gemjax.evaluation.replay.accounting import Bill, Prices, Sizer
from gemjax.evaluation.replay.grounding import CallNeeds, Met, Need, NeedIndex, met
from gemjax.evaluation.replay.loading import Loaded, load, read
from gemjax.evaluation.replay.moment import Method, Moment, Reference
from gemjax.evaluation.replay.refetch import Refetch
from gemjax.evaluation.replay.replay import MethodOutcome, Replay, TrajectoryOutcome, methods_named
from gemjax.evaluation.replay.report import Report
from gemjax.evaluation.replay.running import run
from gemjax.evaluation.replay.tokens import EstimatedTokens, TokenCounter, TokenizerTokens, default_counter
from gemjax.evaluation.replay.trajectory import RecordedTurn, Trajectory, requests

__all__ = [
    "Bill",
    "CallNeeds",
    "EstimatedTokens",
    "Loaded",
    "Met",
    "Method",
    "MethodOutcome",
    "Moment",
    "Need",
    "NeedIndex",
    "Prices",
    "RecordedTurn",
    "Reference",
    "Refetch",
    "Replay",
    "Report",
    "Sizer",
    "TokenCounter",
    "TokenizerTokens",
    "Trajectory",
    "TrajectoryOutcome",
    "default_counter",
    "load",
    "met",
    "methods_named",
    "read",
    "requests",
    "run",
]
