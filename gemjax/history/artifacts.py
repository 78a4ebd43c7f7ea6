"""Which names of one history mean one artifact, kept while the history grows."""

import bisect
from collections.abc import Sequence

from gemjax.history.signals import BlockSignals


class Artifacts:
    """Finds, for a relative path that ends exactly one absolute path of the history, that path.

    `app.py` and `/repo/app.py` are then one artifact, whichever directory the agent was in. A block that is appended
    costs what it names; a history that is another one is read anew.
    """

    def __init__(self) -> None:
        self._read: list[BlockSignals] = []
        self._relative: set[str] = set()
        self._absolute: set[str] = set()
        # Backwards and sorted, the paths with one ending stand together.
        self._backwards: list[str] = []
        self._known: dict[str, tuple[str, ...]] = {}
        self._flying: tuple[str, ...] = ()

    def update(self, signals: Sequence[BlockSignals], flying: Sequence[str] = ()) -> "Artifacts":
        """Make this the index of these blocks, and of what an exchange in flight touches; returns itself."""
        same = len(self._read)
        if same > len(signals) or any(a is not b for a, b in zip(self._read, signals, strict=False)):
            for held in (self._read, self._relative, self._absolute, self._backwards, self._known):
                held.clear()
            same = 0
        self._read.extend(signals[same:])
        new = {path for found in signals[same:] for path in found.touches}
        self._relative.update(path for path in new if path[:1] != "/")
        fresh = {path for path in new if path[:1] == "/"} - self._absolute
        if fresh:
            self._absolute |= fresh
            self._backwards.extend(path[::-1] for path in fresh)
            self._backwards.sort()  # nearly sorted already
            for path in fresh:
                for tail in _tails(path):
                    self._known.pop(tail, None)
        self._flying = tuple(dict.fromkeys(flying))
        return self

    def name(self, path: str) -> str:
        """The one name under which an artifact is known."""
        if path[:1] == "/" or not (path in self._relative or path in self._flying):
            return path
        ends = self._known.get(path)
        if ends is None:
            ending = path[::-1] + "/"
            at = bisect.bisect_left(self._backwards, ending)
            found = self._backwards[at : at + 2]
            ends = self._known[path] = tuple(one[::-1] for one in found if one.startswith(ending))
        if self._flying:
            more = [one for one in self._flying if one not in self._absolute and one.endswith("/" + path)]
            ends = (*ends, *(one for one in more if one[:1] == "/"))
        return ends[0] if len(ends) == 1 else path

    def aliases(self) -> dict[str, str]:
        """Every relative path that has another name, with that name."""
        named = {path: self.name(path) for path in (*self._relative, *self._flying)}
        return {path: name for path, name in named.items() if name != path}


def _tails(path: str) -> list[str]:
    """What stands after each slash: the relative paths that end `path`."""
    tails = []
    at = path.find("/")
    while at >= 0:
        tails.append(path[at + 1 :])
        at = path.find("/", at + 1)
    return tails
