"""The words of a text as the lexical channel counts them: any script, no language's stemming."""

import itertools
import re
import unicodedata

import regex

PREFIX = 6
"""Letters of a longer word that count: "painting" and "paintings", "wandern" and "Wanderung" agree, in any language."""
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]"
_ASCII = re.compile(r"[a-z0-9_]+")
# Marks belong to the letters before them: without them words of Indic scripts would fall apart.
_WORD = regex.compile(rf"(?P<run>(?:{_UNSPACED}[\p{{M}}]*)+)|(?:(?!{_UNSPACED})[\w\p{{M}}])+")
_CLUSTER = regex.compile(r"\X")
_SPEAKER = re.compile(r"\s*([^\n:]{1,40}):\s")


def words(text: str, prefix: int = PREFIX) -> list[str]:
    """Words in order, casefolded; scripts without blanks give each two neighbouring characters.

    Args:
        text: any text.
        prefix: letters of a longer word that are kept; 0: all. Words with digits stay whole.
    """
    if text.isascii():
        found = _ASCII.findall(text.lower())
    else:
        found = []
        for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
            if match["run"] is None:
                found.append(match[0])
                continue
            letters = _CLUSTER.findall(match[0])
            found += [a + b for a, b in itertools.pairwise(letters)] or letters
    if not prefix:
        return found
    return [word[:prefix] if len(word) > prefix and word.isalpha() else word for word in found]


def speaker_of(text: str) -> str | None:
    """The name before the first colon, as in `Ann: I paint`; None without one."""
    match = _SPEAKER.match(text)
    return match[1].strip() if match else None
