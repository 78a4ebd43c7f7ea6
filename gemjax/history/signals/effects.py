"""What one call does to the world, collected while its arguments are read."""

from gemjax.history.signals.paths import MAX_PATH, normalise
from gemjax.history.signals.work import MOST, Work

MAX_NAMES = 64
"""Most paths or sources one call contributes to each list: enough for any real call, a bound for a hostile one."""
_PATH = 80


class Effects:
    """Ordered sets of what a call writes, touches and reads, and how its output is to be understood.

    `quotes`: everything the call prints is content that it was asked to show (a file, a page, search hits), so an
    error message inside it is not the call's own. `no_match`: exit status 1 means "nothing found" and is no failure.
    `announces`: it ran a program whose report may name files that it wrote, relative to `cwd`.
    `single`: one purpose only (an editing tool, an API call), so that a failed result means that nothing was written;
    `tentative`: the writes and sources of a script of which the same can be said.
    `log`: every write in order, repeats included. `work`: the account of the block, from which all readers draw.
    """

    __slots__ = (
        *("announces", "cwd", "log", "no_match", "quotes", "single"),
        *("sources", "tentative", "touches", "work", "writes"),
    )

    def __init__(self, work: Work | None = None) -> None:
        self.work = work or Work(MOST)
        self.writes: dict[str, None] = {}
        self.touches: dict[str, None] = {}
        self.sources: dict[str, None] = {}
        self.tentative: set[str] = set()
        self.log: list[str] = []
        self.quotes = False
        self.no_match = False
        self.single = False
        self.announces = False
        self.cwd = ""

    def write(self, raw: str, cwd: str = "") -> bool:
        """A path that is created, changed or removed. False when the word is no usable path."""
        if len(self.writes) >= MAX_NAMES:  # whatever it is, it would not be kept
            return True
        path = self._path(raw, cwd)
        if path:
            self.write_artifact(path)
        return bool(path)

    def write_artifact(self, key: str) -> None:
        """A changed thing that is not a file: a repository, a set of packages, a reservation."""
        _add(self.writes, key)
        _add(self.touches, key)
        self.log.append(key)

    def touch(self, raw: str, cwd: str = "") -> None:
        path = self._path(raw, cwd) if len(self.touches) < MAX_NAMES else ""
        if path:
            _add(self.touches, path)

    def touch_artifact(self, key: str) -> None:
        _add(self.touches, key)

    def read(self, raw: str, cwd: str = "") -> None:
        """A file whose content was shown: it is touched, and it is a source."""
        path = self._path(raw, cwd) if len(self.sources) < MAX_NAMES else ""
        if path:
            _add(self.touches, path)
            _add(self.sources, path)

    def source(self, key: str) -> None:
        self.work.spend(_PATH)
        if key:
            _add(self.sources, key)

    def _path(self, raw: str, cwd: str) -> str:
        self.work.spend(_PATH + min(len(raw), MAX_PATH) + len(cwd))
        return normalise(raw, cwd)


def _add(names: dict[str, None], name: str) -> None:
    if len(names) < MAX_NAMES:
        names[name] = None
