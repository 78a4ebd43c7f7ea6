"""Splits a shell script into simple commands, in one pass and without running anything.

`shlex` knows neither here-documents nor substitutions, forgets whether an operator was quoted, and reads 2.5 MB/s; this
lexer keeps what the analysis needs. It accepts anything: for an unfinished quote it says `broken` and keeps the rest.
"""

import dataclasses
import re
from collections.abc import Iterator

from gemjax.history.signals.work import MOST, Work, WorkSpent

_SPACE = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()#{}]+|[#{}]")
_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;&|()]")
_REDIRECT = re.compile(r"(?:\d{1,3}|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)")
_QUOTED_PLAIN = re.compile(r"[^\"\\$`]+")
_VARIABLE = re.compile(r"\$(?:\w+|[@*#?$!-])")
_WORD = re.compile(r"([A-Za-z0-9_./,:=@%+*?!^~-]++)(?=[ \t\n;&|)]|\Z)[ \t]*+")
"""A word without any quoting that ends where a blank, an operator or the line ends, and the blanks after it."""
_BRACED, _STRING = re.compile(r"\$\{[^}]*\}"), re.compile(r'"([^"\\$`]*)"')
_INDENT = 64
"""Widest indentation of a here-document's closing line, in characters."""
TOKEN, COMMAND = 20, 60
"""Units of work that one token costs, and one more command or level."""
MAX_DEPTH = 64
"""Deepest nesting of subshells and substitutions; what lies deeper is read as words of the level above."""


@dataclasses.dataclass(slots=True)
class Command:
    """One simple command. `redirects` are (operator, target word); `bodies` are its here-documents.

    `computed` holds the positions in `words` of words that contain a command substitution: their value is unknown.
    `quoted` holds the positions of words that were quoted, wholly or in part.
    """

    words: list[str] = dataclasses.field(default_factory=list)
    redirects: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    bodies: list[str] = dataclasses.field(default_factory=list)
    computed: set[int] = dataclasses.field(default_factory=set)
    quoted: set[int] = dataclasses.field(default_factory=set)


OPEN, CLOSE = "(", ")"
"""Items of a script between which a change of directory is private: a subshell or a substitution."""


@dataclasses.dataclass(slots=True)
class Script:
    """Commands in order of execution, with `OPEN` and `CLOSE` around subshells. `broken`: a quote was never closed."""

    items: list[Command | str]
    broken: bool

    def commands(self) -> Iterator[Command]:
        return (item for item in self.items if isinstance(item, Command))


class _Frame:
    """The command being read, and the word being read in it (None between words)."""

    __slots__ = ("command", "computed", "in_test", "mode", "quoted", "redirect", "word")

    def __init__(self, mode: str) -> None:
        self.mode = mode  # "script", "paren" (subshell or $(...)), "backquote" or "string" (inside double quotes)
        self.command = Command()
        self.word: list[str] | None = None
        self.computed = self.quoted = False
        self.redirect = ""
        self.in_test = False


class _Lexer:
    def __init__(self, text: str, work: Work) -> None:
        self.text = text
        self.work = work
        self.pos = 0
        self.items: list[Command | str] = []
        self.stack = [_Frame("script")]
        self.waiting: list[tuple[str, Command]] = []  # here-documents whose bodies start at the next newline
        self.no_arithmetic_end = self.no_brace_end = False  # a search that failed once is not made again

    def run(self) -> Script:
        text, end, work = self.text, len(self.text), self.work
        work.spend(end)
        while self.pos < end:
            work.left -= TOKEN
            if work.left < 0:
                raise WorkSpent
            frame = self.stack[-1]
            if frame.mode == "string":
                self._in_string(frame)
                continue
            if frame.word is None and not frame.redirect and (match := _WORD.match(text, self.pos)):
                frame.command.words.append(match[1])
                self.pos = match.end()
                continue
            char = text[self.pos]
            if char == "\n":
                self.pos += 1
                self._end_command(frame)
                if self.waiting:
                    self._bodies()
            elif char == "#" and frame.word is None:
                newline = text.find("\n", self.pos)
                self.pos = end if newline < 0 else newline
            elif match := _SPACE.match(text, self.pos):
                self.pos = match.end()
                self._end_word(frame)
            elif (char in "<>&0123456789{") and self._redirect(frame):
                pass
            elif char in ";&|()":
                self._operator(frame)
            else:
                self._word_piece(frame, char)
        broken = any(frame.mode in ("string", "backquote") for frame in self.stack)
        while self.stack:
            frame = self.stack.pop()
            if frame.mode != "string":
                self._end_command(frame)
                if self.stack:
                    self.items.append(CLOSE)
            elif frame.word and self.stack:
                self._append(self.stack[-1], "".join(frame.word))
        return Script(self.items, broken)

    def _append(self, frame: _Frame, piece: str) -> None:
        if frame.word is None:
            frame.word = []
        frame.word.append(piece)

    def _word_piece(self, frame: _Frame, char: str) -> None:
        text = self.text
        if char == "'":
            close = text.find("'", self.pos + 1)
            frame.quoted = True
            if close < 0:  # an apostrophe in prose: the last one of the text, so this search fails only once
                self._append(frame, "")
                self.pos += 1
            else:
                self._append(frame, text[self.pos + 1 : close])
                self.pos = close + 1
        elif match := _STRING.match(text, self.pos):
            self._append(frame, match[1])
            frame.quoted = True
            self.pos = match.end()
        elif char == '"':
            self._append(frame, "")
            frame.quoted = True
            self.stack.append(_Frame("string"))  # no deeper than the substitutions around it, so no check here
            self.pos += 1
        elif char == "\\":
            self._append(frame, text[self.pos + 1 : self.pos + 2])
            self.pos += 2
        elif char in "$`":
            self._dollar_or_backquote(frame, char)
        elif match := _PLAIN.match(text, self.pos):
            self._append(frame, match.group())
            self.pos = match.end()
        else:  # white space of another kind, such as a vertical tab
            self.pos += 1

    def _dollar_or_backquote(self, frame: _Frame, char: str) -> None:
        text = self.text
        if char == "`":
            self.pos += 1
            if frame.mode == "backquote":
                self._close(frame)
            else:
                self._open(frame, "backquote")
        elif text.startswith("$((", self.pos) and not self.no_arithmetic_end:
            close = text.find("))", self.pos)
            if close < 0:
                self.no_arithmetic_end = True
                self.pos += 1
            else:
                self._append(frame, "")
                frame.computed = True
                self.pos = close + 2
        elif text.startswith("$(", self.pos):
            self.pos += 2
            self._open(frame, "paren")
        elif text.startswith("$'", self.pos) and frame.mode != "string":
            self.pos += 1
        elif match := _VARIABLE.match(text, self.pos) or self._braced():
            self._append(frame, match.group())
            self.pos = match.end()
        else:
            self._append(frame, "$")
            self.pos += 1

    def _braced(self) -> re.Match[str] | None:
        """`${name}` and all its forms, to the first closing brace."""
        if self.no_brace_end or not self.text.startswith("${", self.pos):
            return None
        match = _BRACED.match(self.text, self.pos)
        self.no_brace_end = match is None
        return match

    def _in_string(self, frame: _Frame) -> None:
        text = self.text
        if match := _QUOTED_PLAIN.match(text, self.pos):
            self._append(frame, match.group())
            self.pos = match.end()
        elif text[self.pos] == '"':
            self.pos += 1
            self.stack.pop()
            outer = self.stack[-1]
            self._append(outer, "".join(frame.word or ()))
            outer.computed |= frame.computed
        elif text[self.pos] == "\\":
            escaped = text[self.pos + 1 : self.pos + 2]
            self._append(frame, {'"': '"', "\\": "\\", "$": "$", "`": "`", "\n": ""}.get(escaped, "\\" + escaped))
            self.pos += 2
        else:
            self._dollar_or_backquote(frame, text[self.pos])

    def _open(self, frame: _Frame, mode: str) -> None:
        if len(self.stack) >= MAX_DEPTH:
            return
        self.work.spend(COMMAND)
        self._append(frame, "")
        frame.computed = True
        self.items.append(OPEN)
        self.stack.append(_Frame(mode))

    def _close(self, frame: _Frame) -> None:
        self._end_command(frame)
        self.items.append(CLOSE)
        self.stack.pop()

    def _end_word(self, frame: _Frame) -> None:
        if frame.word is None:
            return
        word = "".join(frame.word)
        command = frame.command
        if frame.redirect:
            if frame.redirect in ("<<", "<<-"):
                self.waiting.append((word, command))
            else:
                command.redirects.append((frame.redirect, "" if frame.computed else word))
            frame.redirect = ""
        else:
            if frame.computed:
                command.computed.add(len(command.words))
            if frame.quoted:
                command.quoted.add(len(command.words))
            command.words.append(word)
            if word in ("[[", "]]") and not frame.quoted:  # inside [[ ... ]], < and > compare
                frame.in_test = word == "[["
        frame.word, frame.computed, frame.quoted = None, False, False

    def _end_command(self, frame: _Frame) -> None:
        self._end_word(frame)
        frame.redirect, frame.in_test = "", False
        if frame.command.words or frame.command.redirects:
            self.work.spend(COMMAND)
            self.items.append(frame.command)
            frame.command = Command()

    def _operator(self, frame: _Frame) -> None:
        match = _OPERATOR.match(self.text, self.pos)
        operator = match.group() if match else self.text[self.pos]
        self.pos += len(operator)
        if frame.in_test and operator in ("&&", "||", "(", ")"):
            self._end_word(frame)
        elif operator == "(":
            if frame.word is not None or frame.command.words:  # `f() {` or prose: no subshell starts here
                self._end_word(frame)
            if self.text.startswith("(", self.pos) and not frame.command.words and not self.no_arithmetic_end:
                close = self.text.find("))", self.pos)
                self.no_arithmetic_end = close < 0
                if close >= 0:
                    self.pos = close + 2
                    return
            self._end_command(frame)
            if len(self.stack) < MAX_DEPTH:
                self.work.spend(COMMAND)
                self.items.append(OPEN)
                self.stack.append(_Frame("paren"))
        elif operator == ")":
            if frame.mode == "paren":
                self._close(frame)
            else:  # the pattern of a `case`
                self._end_command(frame)
        else:
            self._end_command(frame)

    def _redirect(self, frame: _Frame) -> bool:
        text = self.text
        if frame.word is not None and text[self.pos] in "0123456789{":
            return False  # `a2>b` writes to b, but the 2 belongs to the word
        match = _REDIRECT.match(text, self.pos)
        if match is None or (frame.in_test and match.group(1) in ("<", ">")):
            if match is not None:
                self.pos = match.end()
                self._end_word(frame)
                return True
            return False
        operator = match.group(1)
        if operator == ">" and frame.word is not None and self.text[self.pos - 1] in "-=" and not frame.quoted:
            self._append(frame, ">")  # `->` and `=>` are arrows in prose far more often than a redirected `-`
            self.pos = match.end()
            return True
        if text.startswith("(", match.end()) and operator in ("<", ">"):  # process substitution
            self.pos = match.end() + 1
            self._open(frame, "paren")
            return True
        self._end_word(frame)
        self.pos = match.end()
        frame.redirect = operator
        return True

    def _bodies(self) -> None:
        """Reads the here-documents announced on the line that just ended."""
        waiting, self.waiting = self.waiting, []
        for word, command in waiting:
            start = at = self.pos
            while True:
                found = self.text.find(word, at) if word else -1
                if found < 0:
                    body, self.pos = self.text[start:], len(self.text)
                    break
                after = found + len(word)
                # Only tabs may stand before the delimiter, so a short look back is enough (and keeps this linear).
                line = self.text.rfind("\n", max(start - 1, found - _INDENT), found) + 1
                alone = after == len(self.text) or self.text[after] in "\r\n"
                if alone and line >= start and not self.text[line:found].strip() and (line > 0 or found < _INDENT):
                    body = self.text[start:line]
                    newline = self.text.find("\n", after)
                    self.pos = len(self.text) if newline < 0 else newline + 1
                    break
                self.work.spend(TOKEN)
                at = found + 1
            command.bodies.append(body)


def split(script: str, work: Work | None = None) -> Script:
    """The simple commands of a shell script, in linear time. Raises `WorkSpent` only, when `work` runs out.

    >>> [c.words for c in split("cd src && grep -n 'a > b' app.py | tee out.txt").commands()]
    [['cd', 'src'], ['grep', '-n', 'a > b', 'app.py'], ['tee', 'out.txt']]
    """
    return _Lexer(script, work or Work(MOST)).run()
