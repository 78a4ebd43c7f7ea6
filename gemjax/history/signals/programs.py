"""What the tables of programs are made of: the kinds of output, the context a program runs in, options and wrappers."""

import dataclasses
import enum
import re
from collections.abc import Callable

from gemjax.history.signals.effects import Effects
from gemjax.history.signals.paths import is_url, looks_like_path
from gemjax.history.signals.tables import word_set


class Kind(enum.Enum):
    """What a program's output is."""

    RUNS = "its own report: an error message in it is an error"
    QUOTES = "content that it was asked to show: an error message in it belongs to that content"
    SEARCHES = "hits; exit status 1 means that there are none"
    QUIET = "nothing, or messages about itself"


@dataclasses.dataclass(slots=True)
class Context:
    """Where a program runs, its here-documents, and where its effects go."""

    effects: Effects
    cwd: str
    bodies: list[str]

    def write(self, words: list[str], otherwise: str = "computed file name") -> None:
        """Writes every word; with no usable one (`xargs rm`), the artifact `otherwise`."""
        if not any([self.effects.write(word, self.cwd) for word in words]):
            self.effects.write_artifact(otherwise)

    def touch(self, words: list[str]) -> None:
        for word in words:
            if looks_like_path(word):
                self.effects.touch(word, self.cwd)

    def read(self, words: list[str]) -> None:
        for word in words:
            if word and not is_url(word):
                self.effects.read(word, self.cwd)


def operands(arguments: list[str], with_value: frozenset[str] = frozenset()) -> list[str]:
    """The words that are neither options nor values of the options in `with_value`.

    >>> operands(["-n", "5", "--color=no", "a.txt", "--", "-b"], frozenset({"-n"}))
    ['a.txt', '-b']
    """
    out: list[str] = []
    skip = False
    for i, word in enumerate(arguments):
        if skip:
            skip = False
        elif word == "--":
            return out + arguments[i + 1 :]
        elif word.startswith("-") and len(word) > 1:
            skip = word in with_value
        else:
            out.append(word)
    return out


def operands_from_first(arguments: list[str], with_value: frozenset[str]) -> list[str]:
    """Everything from the first operand on: the command that a wrapper such as `sudo` or `xargs` runs."""
    skip = False
    for i, word in enumerate(arguments):
        if skip:
            skip = False
        elif word == "--":
            return arguments[i + 1 :]
        elif word.startswith("-"):
            skip = word in with_value
        else:
            return arguments[i:]
    return []


SSH_VALUES = word_set("-p -i -l -o -F -J -L -R -D -b -c -E -m -S -W")
XARGS_VALUES = word_set("-I -n -P -L -d -E -s -a -J --max-args --max-procs --delimiter -j --jobs")

_WRAPPERS: dict[str, frozenset[str]] = {
    "sudo": word_set("-u -g -p -C -h -U --user --group"),
    "doas": word_set("-u"),
    "env": word_set("-u -C -S --unset --chdir"),
    "nohup": frozenset(),
    "nice": word_set("-n"),
    "ionice": word_set("-c -n"),
    "exec": word_set("-a"),
    "builtin": frozenset(),
    "setsid": frozenset(),
    "stdbuf": word_set("-o -e -i"),
    "unbuffer": frozenset(),
    "xvfb-run": word_set("-s -n"),
    "proxychains": word_set("-f"),
    "proxychains4": word_set("-f"),
    "npx": word_set("-p --package"),
    "bunx": frozenset(),
    "winpty": frozenset(),
}
_RUNNERS = {"uv": word_set("--with --python -p --extra --group --project --directory"), "poetry": frozenset()}
_RUNNERS |= {"pipenv": frozenset(), "hatch": frozenset(), "pdm": frozenset(), "rye": frozenset(), "pixi": frozenset()}


def unwrap(name: str, words: list[str]) -> list[str] | None:
    """The command inside `sudo ...`, `timeout 5 ...`, `uv run ...`; None when the program is no wrapper."""
    if name in _WRAPPERS:
        return operands_from_first(words[1:], _WRAPPERS[name])
    if name == "timeout":
        return operands_from_first(words[1:], word_set("-s -k --signal --kill-after"))[1:]
    if name == "command" and not any(w.startswith("-") for w in words[1:2]):
        return words[1:]
    if name in _RUNNERS and len(words) > 2 and words[1] == "run":
        return operands_from_first(words[2:], _RUNNERS[name])
    if name in ("pnpm", "yarn", "conda", "mamba") and len(words) > 2 and words[1] in ("exec", "dlx", "run"):
        return operands_from_first(words[2:], word_set("-n -p --name")) if name in ("conda", "mamba") else None
    return None


_PYTHON = re.compile(r"(?:python|pypy|ipython)[\d.]*", re.ASCII)


def is_python(name: str) -> bool:
    return _PYTHON.fullmatch(name) is not None


Handler = Callable[[list[str], Context], Kind]
"""Records what a program does with its arguments in the context's effects, and says what its output is."""
