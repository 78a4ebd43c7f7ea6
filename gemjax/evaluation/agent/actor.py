"""A scripted actor: it knows what to call, and may only use values that stand in the messages it is handed."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from gemjax.evaluation.agent.dojo import Shown, World
from gemjax.evaluation.agent.schedule import Move

Messages = list[dict[str, Any]]
Forward = Callable[[Messages], Messages]
Answer = Callable[[dict[str, Any]], dict[str, Any] | None]

LEAST_VALUE = 4
"""Characters: shorter values stand in too many places to say whether they were lost."""

_BATCH = "Work on these tasks in turn, one step of each at a time.\n\n"


@dataclasses.dataclass(slots=True)
class Tally:
    """What happened in one chain.

    Attributes:
        tasks, passed: tasks, and those whose own check passed.
        calls: calls of any kind, with those of `padding`, `reread` and `recalls`.
        needed, missing: values that a call had to copy from an earlier result, and those not in the forwarded messages.
        recalled: missing values that a recall brought back.
        recalls, reread: calls of the recall tool, and calls repeated for their result.
        lost: tasks given up, since a value was gone and reading it again would have changed something.
        distances: for each needed value, how many calls back its newest result is.
    """

    tasks: int = 0
    passed: int = 0
    calls: int = 0
    padding: int = 0
    needed: int = 0
    missing: int = 0
    recalled: int = 0
    recalls: int = 0
    reread: int = 0
    lost: int = 0
    distances: list[int] = dataclasses.field(default_factory=list)


class Actor:
    """Works through one chain.

    Args:
        worlds: a fresh one for each task.
        forward: what is sent of a history; called before each call, as an agent asks its model.
        answer: answers a call of the recall tool; None for an agent without one.
        recall_name: what the recall tool is called.
    """

    def __init__(self, worlds: Sequence[World], forward: Forward, answer: Answer | None, recall_name: str) -> None:
        self.worlds = worlds
        self.tally = Tally(tasks=len(worlds))
        prompts = "\n\n".join(f"Task {i}: {world.prompt}" for i, world in enumerate(worlds))
        self.messages: Messages = [{"role": "user", "content": _BATCH + prompts}]
        self._forward = forward
        self._answer = answer
        self._recall_name = recall_name
        self._shown: list[list[tuple[int, Shown]]] = [[] for _ in worlds]
        self._lost: set[int] = set()

    def run(self, moves: Sequence[Move], padding: Sequence[World]) -> Tally:
        """Make all moves; `padding`: worlds of their own in which the reads that only fill the history are run."""
        for move in moves:
            if move.padding:
                world = padding[move.task]
                self._ask()
                self._do(world, move.task, *world.calls[move.call], own=False)
                self.tally.padding += 1
            elif move.task not in self._lost:
                self._move(move)
        kept = [w for t, w in enumerate(self.worlds) if t not in self._lost]
        self.tally.passed = sum(world.passed() for world in kept)
        self.tally.lost = len(self._lost)
        return self.tally

    def _move(self, move: Move) -> None:
        world, tally = self.worlds[move.task], self.tally
        name, arguments = world.calls[move.call]
        shown = self._shown[move.task]
        prompt = plain(world.prompt)
        copied = [
            v
            for v in dict.fromkeys(plain(leaf) for leaf in leaves(arguments))
            if len(v) >= LEAST_VALUE and v not in prompt and any(v in plain(s.text) for _, s in shown)
        ]
        seen = self._ask()
        gone = [v for v in copied if v not in seen]
        tally.needed += len(copied)
        tally.missing += len(gone)
        for value in copied:
            newest = max(at for at, s in shown if value in plain(s.text))
            tally.distances.append(tally.calls - newest)
        if gone and self._answer is not None:
            self._recall(world, move, name, arguments, gone)
            seen = self._ask()
            still = [v for v in gone if v not in seen]
            tally.recalled += len(gone) - len(still)
            gone = still
        while gone:
            source = next(s for _, s in reversed(shown) if gone[0] in plain(s.text))
            if not world.changes_nothing(source.name, source.arguments):
                self._lost.add(move.task)
                return
            self._do(world, move.task, source.name, source.arguments)
            tally.reread += 1
            seen = self._ask()
            # What was just read is the latest block; every method sends it.
            gone = [v for v in gone if v not in seen and v not in plain(shown[-1][1].text)]
        self._do(world, move.task, name, arguments)

    def _recall(self, world: World, move: Move, name: str, arguments: dict[str, Any], gone: list[str]) -> None:
        """Ask for what is gone with what is known: the task, the tool, and the arguments that are not gone."""
        assert self._answer is not None
        known = [v for leaf in leaves(arguments) if (v := plain(leaf)) and not any(g in v for g in gone)]
        earlier = [s.name for _, s in self._shown[move.task]]
        query = " ".join([name, *arguments, *known, world.prompt, *dict.fromkeys(earlier)])
        call = self._call(self._recall_name, {"query": query}, f"Task {move.task}: look for what is no longer shown.")
        answer = self._answer(call)
        if answer is None:
            raise AssertionError("the recall tool's call was not answered")
        self.messages.append(answer)
        self.tally.recalls += 1

    def _ask(self) -> str:
        """One request: what is sent, as plain text."""
        return plain(text_of(self._forward(list(self.messages))))

    def _do(self, world: World, task: int, name: str, arguments: dict[str, Any], own: bool = True) -> None:
        call = self._call(name, arguments, f"Task {task}.")
        result = world.run(name, arguments)
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})
        if own:
            self._shown[task].append((self.tally.calls - 1, result))

    def _call(self, name: str, arguments: dict[str, Any], text: str) -> dict[str, Any]:
        self.tally.calls += 1
        function = {"name": name, "arguments": json.dumps(arguments, default=str, ensure_ascii=False)}
        call = {"id": f"call_{self.tally.calls:04d}", "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
        return call


def leaves(value: Any) -> list[str]:
    """The values in a call's arguments as text; booleans and nulls left out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def plain(text: str) -> str:
    """White space collapsed: results are YAML, which folds long lines."""
    return " ".join(text.split())


def text_of(messages: Messages) -> str:
    """What a model reads of messages: contents, and the arguments of calls."""
    parts: list[str] = []
    for message in messages:
        parts.append(message.get("content") or "")
        for call in message.get("tool_calls", ()):
            parts += leaves(json.loads(call["function"]["arguments"]))
    return "\n".join(parts)
