"""Responses items into turns: calls and outputs pair by `call_id` wherever they stand."""

from collections import Counter
from collections.abc import Sequence

from gemjax.history.formats.base import Exchange, View, problem, warning
from gemjax.history.problems import Problem

MAX_FOLLOWERS = 8
"""So many runs of calls without a reasoning item of their own go with the reasoning before them; a turn that reaches
this number is never dropped."""


class _Turn:
    """The items of one model response as far as they can be told, with the outputs of its calls."""

    def __init__(self, items: list[int], views: Sequence[View]) -> None:
        self.items: list[int] = []
        self.asked: dict[str, int] = {}
        """Call id -> index of the call that has no output yet."""
        self.calls: Counter[str] = Counter()
        self.outputs: Counter[str] = Counter()
        self.bound = False
        self.sound = True
        self.followers = 0
        self.closed = not any(views[i].thought and views[i].id for i in items)
        """Whether what comes later cannot belong to it; only named reasoning is ever missed by a provider."""

    def exchange(self, answered: bool) -> Exchange:
        start, stop = self.items[0], self.items[-1] + 1
        own = set(self.items)
        between = tuple(i for i in range(start, stop) if i not in own) if len(own) < stop - start else ()
        complete = answered and self.sound
        removable = complete and not self.bound and self.followers < MAX_FOLLOWERS
        return Exchange(start, stop, complete, removable, between)


class Pairing:
    """One walk over the items from `start`.

    A run is a stretch of items that the model wrote, one after the other. A run is of the same response as the one
    before it when a call of that one was still unanswered. Where all were answered it cannot be told from the items,
    and providers refuse a call without the reasoning item of its response: so a run that has no reasoning of its own
    goes with the reasoning before it, up to what the user or the model says next.
    """

    def __init__(self, views: Sequence[View], start: int) -> None:
        self._views = views
        self._turns: list[_Turn] = []
        self._owner: dict[str, _Turn] = {}
        self._current: _Turn | None = None
        self._lone: list[int] = []
        """A run that ended with reasoning and had no call: what it belongs to has yet to come."""
        self._referenced = False
        self.problems: list[Problem] = []
        self._last_output = {r.id: i for i in range(start, len(views)) for r in views[i].results if r.id}
        self._last_run = start
        i, n = start, len(views)
        while i < n:
            view = views[i]
            if view.model:
                stop = i + 1
                while stop < n and views[stop].model:
                    stop += 1
                self._run(i, stop)
                i = stop
                continue
            if view.role == "result":
                self._output(i, view)
            else:
                self._conversation(i, view)
            i += 1
        self._dangling(n)
        self.exchanges = [self._finish(turn) for turn in self._turns]

    def _run(self, start: int, stop: int) -> None:
        views = self._views
        items = list(range(start, stop))
        self._last_run = start
        self._referenced = any(views[i].reference for i in items)
        if not any(views[i].calls for i in items):
            self._dangling(start)
            if views[stop - 1].thought and stop < len(views):
                self._lone = items
            elif self._current is not None and not self._waits(start):
                self._current.closed = True
            return
        if views[start].thought:
            self._dangling(start)
        items = self._lone + items
        self._lone = []
        turn = self._current
        if turn is None or not self._waits(start):
            if turn is not None and not turn.closed and not views[items[0]].thought:
                turn.followers += 1
                turn.closed = turn.followers >= MAX_FOLLOWERS
            else:
                turn = self._current = _Turn(items, views)
                self._turns.append(turn)
        for i in items:
            turn.items.append(i)
            turn.bound |= views[i].bound
            for call in views[i].calls:
                self._call(i, call.id, turn)

    def _call(self, index: int, name: str, turn: _Turn) -> None:
        if not name:
            turn.sound = False
            return
        if name in turn.asked:
            text = "2 calls of one turn share an id"
            if turn.sound:
                self.problems.append(
                    problem("duplicate-call-id", text, "give each call its own id", name, turn.items[0])
                )
            turn.sound = False
        turn.calls[name] += 1
        turn.asked[name] = index
        self._owner[name] = turn

    def _output(self, index: int, view: View) -> None:
        name = view.results[0].id
        turn = self._owner.get(name) if name else self._current
        if turn is None or (turn.outputs[name] >= turn.calls[name] > 0 and turn is not self._current):
            if not self._referenced:
                self.problems.append(
                    problem(
                        "orphan-result",
                        "an output item answers no call before it",
                        "send the call it answers, or its previous_response_id, or leave it out",
                        name,
                        index,
                    )
                )
            return
        turn.items.append(index)
        turn.items.sort()
        turn.bound |= view.bound
        turn.outputs[name] += 1
        turn.asked.pop(name, None)
        if not name:
            turn.sound = False
        elif turn.outputs[name] > turn.calls[name]:
            turn.sound = False
            self.problems.append(
                problem(
                    "duplicate-result",
                    f"one call has {turn.outputs[name] - turn.calls[name] + 1} results",
                    "send one result a call",
                    name,
                    index,
                )
            )

    def _conversation(self, index: int, view: View) -> None:
        turn = self._owner.get(view.answers)
        if turn is not None and (turn is self._current or view.answers in turn.asked):
            # Nobody knows what it says of the call, so the two stay together.
            turn.bound = True
            if turn.asked.pop(view.answers, None) is not None:
                turn.outputs[view.answers] += 1
        if view.role == "user" and self._current is not None and not self._waits(index):
            self._current.closed = True
        self._last_run = max(self._last_run, index + 1)

    def _waits(self, index: int) -> bool:
        """Whether a call of the current turn has its output further on: what stands here was said at the same time."""
        turn = self._current
        return turn is not None and any(
            self._last_output.get(name, -1) > index and not self._views[at].deferred for name, at in turn.asked.items()
        )

    def _dangling(self, stop: int) -> None:
        """Reasoning whose item did not come."""
        if self._lone:
            self.problems.append(
                warning(
                    "dangling-reasoning",
                    "a reasoning item is not followed by the item it belongs to",
                    "send that item, or leave the reasoning out",
                    index=self._lone[-1],
                )
            )
        self._lone = []

    def _finish(self, turn: _Turn) -> Exchange:
        """An unanswered call is a fault, unless its output is on its way: it is in the last run with only outputs after
        it, or the tool may answer at any time."""
        for name, at in turn.asked.items():
            if at < self._last_run and not self._views[at].deferred:
                self.problems.append(
                    problem(
                        "missing-result",
                        "a tool call has no result",
                        "send its result, or leave the call out",
                        name,
                        turn.items[0],
                    )
                )
        return turn.exchange(answered=not turn.asked)
