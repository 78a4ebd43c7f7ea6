"""Shell scripts: which files they write, touch and show. Read, never run.

`lexer` gives the simple commands; `programs` says what each program does with its operands; this module follows the
working directory, variables, wrappers (`sudo`, `env`, `bash -c`, `xargs`, `find -exec`) and redirections.
"""

import re

from gemjax.history.signals import programs, python
from gemjax.history.signals.effects import Effects
from gemjax.history.signals.file_programs import OPEN_FILE, javascript
from gemjax.history.signals.lexer import CLOSE, OPEN, Command, split
from gemjax.history.signals.paths import MAX_PATH, looks_like_path, normalise
from gemjax.history.signals.service_programs import run
from gemjax.history.signals.tables import word_set

MAX_SCRIPT = 200_000
"""Characters of a script that are read; the rest of a longer one is data in a here-document."""
MAX_NESTING = 4
"""Deepest chain of scripts inside scripts (`bash -c "bash -c ..."`)."""
__all__ = ["OPEN_FILE", "analyse", "analyse_words"]

_MAX_VALUES, _MAX_VARIABLES, _MAX_CHAIN = 16, 64, 8
_COMMAND, _WORD = 200, 24  # units of work that a simple command costs, and each of its words

_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.S | re.ASCII)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_OPENING_WORDS = word_set("do then else elif if while until { ! time function coproc")
_CLOSING_WORDS = word_set("done fi esac } in ;; case select [[ ]] [ test (")
_FIND_RUNS = word_set("-exec -execdir -ok -okdir")
_SHELLS = word_set("bash sh zsh dash ksh ash fish rbash")
_WRITE_OPERATORS = frozenset((">", ">>", ">|", "&>", "&>>", ">&", "<>"))
# Where quotes do not pair up, these find what a reader would still recognise as a write.
_FALLBACK = re.compile(
    r"(?:^|\s)(?:\d?>{1,2}|tee(?:\s{1,9}-a)?|sed\s{1,9}-i\S{0,40}\s{1,9}\S{1,400}|touch|mkdir(?:\s{1,9}-p)?"
    r"|rm(?:\s{1,9}-\w{1,20})?)\s{0,9}(\S{1,401})"
)


def analyse(script: str, effects: Effects, cwd: str = "", depth: int = 0) -> None:
    """Adds to `effects` what a shell script writes, touches and shows.

    Args:
        script: the script as given to a shell tool; only the first `MAX_SCRIPT` characters are read.
        effects: receives paths resolved against `cd` and `cwd`; its `quotes` and `no_match` are set.
        cwd: working directory at the start, "" when unknown.
        depth: how many scripts this one is nested in.
    """
    if depth > MAX_NESTING:
        return
    parsed = split(script[:MAX_SCRIPT], effects.work)
    shell = _Shell(effects, cwd, depth)
    shell.run(parsed.items)
    if parsed.broken:
        effects.work.spend(4 * min(len(script), MAX_SCRIPT))
        for match in _FALLBACK.finditer(script[:MAX_SCRIPT]):
            effects.work.spend(_COMMAND // 2)
            word = match.group(1).strip("\"'`;)")
            if looks_like_path(word):
                effects.write(word, cwd)


def analyse_words(words: list[str], effects: Effects, cwd: str = "") -> None:
    """The same for a command given as a list, as Codex's `shell` tool sends it: `["bash", "-lc", "..."]`."""
    _Shell(effects, cwd, 0).run([Command(words=list(words))])


class _Shell:
    """Walks the commands of one script, following what changes the meaning of later words."""

    def __init__(self, effects: Effects, cwd: str, depth: int) -> None:
        self.effects = effects
        self.cwd = cwd
        self.depth = depth
        self.variables: dict[str, list[str]] = {}
        self.chain = 0
        self.kinds: list[programs.Kind] = []
        self.ledger: list[tuple[list[str], programs.Kind]] = []  # of each program: what it writes, what it prints
        self.interprets = False  # some of the script is code in another language, which may fail half-way

    def run(self, items: "list[Command | str]") -> None:
        directories: list[str] = []
        for item in items:
            if not isinstance(item, str):
                self.command(item)
            elif item == OPEN:
                directories.append(self.cwd)
            elif item == CLOSE and directories:
                self.cwd = directories.pop()
        kinds = self.kinds
        if not self.interprets:
            self.effects.tentative.update(self.undone_by_failure())
        if any(kind is programs.Kind.RUNS for kind in kinds):
            self.effects.announces, self.effects.cwd = True, self.cwd
            return
        self.effects.quotes = any(kind is not programs.Kind.QUIET for kind in kinds)
        self.effects.no_match = bool(kinds) and kinds[-1] is programs.Kind.SEARCHES

    def undone_by_failure(self) -> list[str]:
        """The writes that did not happen if the script failed: where everything that runs something was to write
        (`git add && git commit`), or where a single quiet program was (`cp a b`). Redirections happen in any case."""
        running = [written for written, kind in self.ledger if kind is programs.Kind.RUNS]
        if running:
            return [path for written in running for path in written] if all(running) else []
        writers = [written for written, _ in self.ledger if written]
        return writers[0] if len(writers) == 1 else []

    def command(self, command: Command) -> None:
        self.effects.work.spend(_COMMAND)
        for operator, target in command.redirects:
            if operator in _WRITE_OPERATORS:
                self.write_to(target)
            elif operator == "<":
                self.effects.read(self.expand_one(target), self.cwd)
        expanded = [w for i, word in enumerate(command.words) for w in self.expand(word, i in command.computed)]
        self.simple(expanded, command.bodies)

    def write_to(self, target: str) -> None:
        for word in self.expand(target, False):
            if not word:
                self.effects.write_artifact("computed file name")
            elif not word.isdigit() and not word.startswith(("&", "/dev/")):  # a number is a descriptor: `2>&1`
                self.effects.write(word, self.cwd)

    def expand(self, word: str, computed: bool) -> list[str]:
        """The values a word may take, as far as this script says: `$f` in `for f in a b` is `a` and `b`."""
        if computed:
            return [word] if word and looks_like_path(word) and word.endswith("/") else []
        if "$" not in word or not self.variables:
            return [word]
        match = _VARIABLE.fullmatch(word)
        if match:
            values = self.variables.get(match.group(1) or match.group(2), [word])
            self.effects.work.spend(sum(map(len, values)))
            return values
        return [self.expand_one(word)]

    def expand_one(self, word: str) -> str:
        if "$" not in word:
            return word
        self.effects.work.spend(len(word) + _WORD * word.count("$"))
        return _VARIABLE.sub(self.value, word)

    def value(self, named: re.Match[str]) -> str:
        text = (self.variables.get(named[1] or named[2]) or [named[0]])[0][:400]
        self.effects.work.spend(len(text))
        return text

    def simple(self, command: list[str], bodies: list[str]) -> None:
        """One simple command whose words are expanded. Loops, because wrappers hold the command proper."""
        for _ in range(12):
            self.effects.work.spend(_WORD * len(command))
            command = self.without_openings(command)
            if not command:
                return
            name = command[0].rpartition("/")[2] or command[0]
            rest = programs.unwrap(name, command)
            if rest is None:
                break
            command = rest
        else:
            return
        arguments = command[1:]
        if name in ("cd", "pushd"):
            self.change_directory(arguments)
        elif name == "for" and len(arguments) > 2 and arguments[1] == "in":
            if arguments[0] in self.variables or len(self.variables) < _MAX_VARIABLES:
                self.variables[arguments[0]] = arguments[2 : 2 + _MAX_VALUES]
        elif name in ("export", "local", "declare", "readonly", "typeset"):
            for argument in arguments:
                self.assign(argument)
        elif name in _CLOSING_WORDS:
            if name in ("[", "[[", "test"):
                self.kinds.append(programs.Kind.SEARCHES)
        elif not self.nested(name, arguments, bodies):
            self.program(name, arguments, bodies)

    def without_openings(self, command: list[str]) -> list[str]:
        at = 0
        while at < len(command) and (self.assign(command[at]) or command[at] in _OPENING_WORDS):
            at += 1
        return command[at:]

    def assign(self, word: str) -> bool:
        match = _ASSIGNMENT.fullmatch(word) if "=" in word else None
        if match and len(self.variables) < _MAX_VARIABLES:
            self.variables[match[1]] = [self.expand_one(match[2])]
        return match is not None

    def change_directory(self, arguments: list[str]) -> None:
        target = next((a for a in arguments if not a.startswith("-")), "")
        if target and "$" not in target:
            self.effects.work.spend(len(self.cwd) + min(len(target), MAX_PATH))
            there = normalise(target, self.cwd)
            self.cwd = there if 0 < len(there) <= MAX_PATH else self.cwd

    def nested(self, name: str, arguments: list[str], bodies: list[str]) -> bool:
        """Programs that carry another program: shells, interpreters, ssh, xargs, find, make-like runners."""
        inner = None
        if name in _SHELLS:
            inner = _after_flag(arguments, "c")
            if inner is None and bodies:
                inner = bodies[0]
            if inner is None:  # a script file
                for argument in arguments:
                    if not argument.startswith("-"):
                        self.effects.touch(argument, self.cwd)
                        break
        elif name == "eval":
            inner = " ".join(arguments)
        elif name == "ssh":
            operands = programs.operands(arguments, programs.SSH_VALUES)
            inner = " ".join(operands[1:]) or "".join(bodies[:1])
        elif name in ("xargs", "parallel"):
            self.chained(programs.operands_from_first(arguments, programs.XARGS_VALUES))
            return True
        elif name == "find":
            run(name, arguments, self.context(bodies))
            self.kinds.append(programs.Kind.QUOTES)
            self.find(arguments)
            return True
        elif programs.is_python(name):
            self.interprets = True
            return self.python(arguments, bodies)
        elif name in ("node", "deno", "bun") and (code := _after_flag(arguments, "e")) is not None:
            self.interprets = True
            javascript(code, self.context(bodies))
            self.kinds.append(programs.Kind.RUNS)
            return True
        if inner is None:
            if name in _SHELLS:
                self.kinds.append(programs.Kind.RUNS)
            return name in _SHELLS
        self.effects.work.spend(_COMMAND + _WORD * len(self.variables))
        analyse_nested = _Shell(self.effects, self.cwd, self.depth + 1)
        if self.depth < MAX_NESTING:
            parsed = split(inner[:MAX_SCRIPT], self.effects.work)
            analyse_nested.variables = dict(self.variables)
            analyse_nested.run(parsed.items)
        self.kinds.extend(analyse_nested.kinds or [programs.Kind.RUNS])
        self.interprets |= analyse_nested.interprets
        self.ledger.extend(analyse_nested.ledger)
        return True

    def chained(self, command: list[str]) -> None:
        """A command that another one starts (`xargs rm`, `find -exec sed`): read `_MAX_CHAIN` deep."""
        if self.chain < _MAX_CHAIN:
            self.chain += 1
            self.simple(command, [])
            self.chain -= 1

    def find(self, arguments: list[str]) -> None:
        """Each `-exec` runs what stands between it and the next `;` or `+`."""
        command: list[str] | None = None
        for word in arguments:
            if command is None:
                command = [] if word in _FIND_RUNS else None
            elif word in (";", "+"):
                self.chained(command)
                command = None
            elif word != "{}":
                command.append(word)
        if command:  # the lexer takes an unquoted `;` for itself
            self.chained(command)
        if "-delete" in arguments:
            root = arguments[0] if arguments and not arguments[0].startswith("-") else "."
            self.context([]).write([root])

    def python(self, arguments: list[str], bodies: list[str]) -> bool:
        self.kinds.append(programs.Kind.RUNS)
        if "-m" in arguments:
            module = arguments[arguments.index("-m") + 1 :]
            if module and module[0] in ("pip", "pip3", "ensurepip", "venv", "conda", "uv"):
                self.kinds.pop()
                self.program(module[0], module[1:], bodies)
            else:
                for word in module[1:]:
                    if looks_like_path(word):
                        self.effects.touch(word, self.cwd)
            return True
        code = _after_flag(arguments, "c")
        if code is None and bodies:
            code = bodies[0]
        if code is not None:
            before = set(self.effects.sources)
            python.analyse(code, self.effects, self.cwd, self.run_inner)
            self.effects.tentative.update(self.effects.sources.keys() - before)
        for word in arguments:
            if word is not code and looks_like_path(word):
                self.effects.touch(word, self.cwd)
        return True

    def run_inner(self, command: "str | list[str]") -> None:
        if self.depth < MAX_NESTING:
            inner = _Shell(self.effects, self.cwd, self.depth + 1)
            if isinstance(command, str):
                inner.run(split(command[:MAX_SCRIPT], self.effects.work).items)
            else:
                inner.run([Command(words=command)])

    def program(self, name: str, arguments: list[str], bodies: list[str]) -> None:
        before = len(self.effects.log)
        kind = run(name, arguments, self.context(bodies))
        self.kinds.append(kind)
        self.ledger.append((self.effects.log[before:], kind))

    def context(self, bodies: list[str]) -> programs.Context:
        return programs.Context(self.effects, self.cwd, bodies)


def _after_flag(arguments: list[str], letter: str) -> str | None:
    """The word after `-c`, `-lc` and the like; for a double-dash option, none."""
    for i, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return None
        if argument[1:2] != "-" and letter in argument[1:] and len(argument) <= 6 and i + 1 < len(arguments):
            return arguments[i + 1]
    return None
