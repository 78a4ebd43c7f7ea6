"""When two memories say the same: in the very words (to keep one), or but for case, blanks and marks (to show one)."""

import hashlib
import json
import unicodedata

from gemjax.memory.record import Memory, Scope


def digest(text: str, scope: Scope) -> bytes:
    """Of text and scope; blanks and Unicode's two ways to write a letter make no difference, case and marks do."""
    words = " ".join(unicodedata.normalize("NFC", text).split())
    return _hash(json.dumps([words, *scope]))


def same_words(memory: Memory) -> bytes:
    """Equal for memories that a reader takes for one: case, blanks and marks around the words make no difference.

    A number, a "not", a sign inside a word, another scope or other metadata do: a contradiction is another memory.
    """
    words = (_bare(word) for word in unicodedata.normalize("NFKC", memory.text).casefold().split())
    kept = [word for word in words if word]
    if not kept:  # marks alone: then they are what it says
        return digest(memory.text, memory.scope)
    return _hash(json.dumps([kept, memory.scope, memory.metadata], sort_keys=True))


def _bare(word: str) -> str:
    """Without quotes around it, and full stops, commas, colons and exclamation marks behind it.

    A question mark, a sign, a unit, and anything before the word ("!ready", ".5") stay: they can change what it says.
    """
    quotes, ends = "\"'\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019", ".,;:!\u2026\u3002\u3001\uff0c\uff01\uff1b\uff1a"
    return word.strip(quotes).rstrip(ends + quotes)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
