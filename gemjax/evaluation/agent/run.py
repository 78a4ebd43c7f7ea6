"""Every replay method under a scripted agent: tasks passed, values missing, what was read again, and the bill."""

import dataclasses
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.agent.actor import Actor, Answer, Messages, Tally
from gemjax.evaluation.agent.dojo import SUITES, Suite
from gemjax.evaluation.agent.model import Model, converse
from gemjax.evaluation.agent.schedule import LEAST_CALLS, WIDTH, Move, interleaved, long_reads
from gemjax.evaluation.replay import (
    Bill,
    EstimatedTokens,
    Method,
    Moment,
    Prices,
    RecordedTurn,
    Reference,
    Sizer,
    Trajectory,
)
from gemjax.evaluation.replay.compressed import MeteredEncoder
from gemjax.evaluation.replay.replay import methods_named, reference_method
from gemjax.history.blocks import Reader

RECALL = "+recall"
"""After the name of a compressing method: with the recall tool among the agent's tools."""

DEFAULT = ("none", "paper", "cost-aware", "cost-aware+recall", "keep-last-16", "clear-tool-results", "random")


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """One method on one suite. `cost` in characters at the prices given, everything that was sent included."""

    suite: str
    method: str
    tally: Tally
    requests: int
    chars: int
    cost: float

    def to_json(self) -> dict[str, Any]:
        """JSON values; the distances as their median and the share beyond 16 calls."""
        values = dataclasses.asdict(self.tally)
        far = values.pop("distances")
        return {
            "suite": self.suite,
            "method": self.method,
            **values,
            "median_distance": median(far) if far else None,
            "beyond_16": sum(d > 16 for d in far) / len(far) if far else None,
            "requests": self.requests,
            "chars": self.chars,
            "cost": self.cost,
        }


def run(
    suites: Sequence[str] = SUITES,
    methods: Sequence[str] = DEFAULT,
    encoder: Any = None,
    prices: Prices | None = None,
    *,
    least_calls: int = LEAST_CALLS,
    width: int = WIDTH,
    model: Model | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Chain]:
    """Run AgentDojo's tasks under each method; see docs/agent.md.

    Args:
        suites: names, or `["all"]`.
        methods: names of replay methods; `+recall` after a compressing one gives the agent the recall tool.
        encoder: an `Encoder` with a name; texts are asked for again by each method, so give a cached one.
        prices: of the bill, which the cost-aware policy is told.
        least_calls: a chain is padded with long reads to this many calls.
        width: tasks that are worked on at a time.
        model: acts in the place of the script, one task after another; `least_calls` and `width` are then not used.
        progress: called with what is being run.

    Raises: `ConfigError` for unknown names, or where AgentDojo is not installed.
    """
    prices = prices or Prices()
    chosen = [name for s in suites for name in (SUITES if s == "all" else (s,))]
    for name in methods:
        _method(name, prices)
    found = []
    for suite in (Suite(name) for name in dict.fromkeys(chosen)):
        moves: list[Move] = []
        if model is None:
            lengths = [len(world.calls) for world in suite.worlds()]
            moves = interleaved(lengths, long_reads(suite.worlds()), least_calls, width)
        for name in methods:
            if progress is not None:
                progress(f"{suite.name}, {name}")
            sender = Sender(_method(name, prices), encoder, prices, suite.tools(), name.endswith(RECALL))
            if model is None:
                actor = Actor(suite.worlds(), sender.forward, sender.answer, sender.recall_name)
                tally = actor.run(moves, suite.worlds())
            else:
                tally = converse(suite.worlds(), model, sender.tools, sender.forward, sender.answer)
            totals = sender.ledger.totals
            found.append(Chain(suite.name, name, tally, totals.requests, totals.chars, totals.cost))
    return found


def _method(name: str, prices: Prices) -> Method:
    (method,) = methods_named([name.removesuffix(RECALL)], prices)
    if name.endswith(RECALL) and not method.recalls:
        raise ConfigError(f"{name!r}: only a compressing method has an archive to recall from")
    return method


class Sender:
    """A replay method on a history that is still growing, with the bill of what it sends."""

    def __init__(self, method: Method, encoder: Any, prices: Prices, tools: list[Any], recall: bool) -> None:
        counter = EstimatedTokens()
        known: dict[str, int] = {}
        reference = reference_method(prices)
        self._method, self._reference = method, reference
        self._meter = MeteredEncoder(encoder, counter, known)
        self._reader = Reader()
        self._needs_reference = method.follows_reference
        for one in (method, reference):
            one.prepare(self._meter)
        self._template: dict[str, Any] = {"model": "scripted", "tools": tools}
        method.begin(self._trajectory([]))
        reference.begin(self._trajectory([]))
        self.answer: Answer | None = None
        self.recall_name = ""
        if recall:
            archive = method.archive()
            tool = archive.recall_tool("chat", tools=tools)
            self._template["tools"] = [tool, *tools]
            self.recall_name = tool["function"]["name"]
            self.answer = archive.answer
        self.ledger = Bill(self._template, "messages", Sizer(counter), prices)
        self._count = 0

    @property
    def tools(self) -> list[dict[str, Any]]:
        """What the agent's model is offered, the recall tool included."""
        offered: list[dict[str, Any]] = self._template["tools"]
        return offered

    def forward(self, messages: Messages) -> Messages:
        """What the method sends of a history; it is added to the bill."""
        request = {**self._template, "messages": messages}
        blocks = self._reader.parse(request, "chat").blocks
        turn = RecordedTurn(self._count, len(messages), request, messages, blocks, None)
        self._count += 1
        trajectory = self._trajectory(messages)

        def vectors() -> np.ndarray:
            return np.asarray(self._meter.encode([b.content.selection_text for b in blocks]))

        reference = Reference(frozenset(range(len(blocks))), False)
        moment = Moment(trajectory, turn, reference, self.ledger.chars_of, vectors, self._meter.encode)
        if self._needs_reference:
            self._reference.forward(moment)
            moment = dataclasses.replace(moment, reference=self._reference.reference(moment))
        sent = self._method.forward(moment)
        self.ledger.send(sent)
        return sent

    def _trajectory(self, messages: Messages) -> Trajectory:
        return Trajectory("agent", "chat", self._template, messages, None, "")
