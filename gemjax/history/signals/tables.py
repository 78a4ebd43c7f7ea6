"""Tables of names are written as text, a name a word, because two hundred quoted strings hide a missing comma."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set.

    >>> sorted(word_set("cp mv  rm"))
    ['cp', 'mv', 'rm']
    """
    return frozenset(text.split())
