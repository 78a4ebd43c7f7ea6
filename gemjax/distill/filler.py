"""What a dialogue can spare first: small talk, questions back, and words that only colour."""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import dataclasses

_COLOUR = "a an the so very really just totally definitely actually such pretty super quite"
_INTERJECTIONS = "wow hey hi hello oh yeah yep yup well ok okay haha hehe lol thanks aw aww hmm um uh"
_WORDS = frozenset(f"{_COLOUR} {_INTERJECTIONS}".split())
_EDGES = ".,!?;:…'\"()[]“”‘’"
_QUESTION = "?？؟"


@dataclasses.dataclass(frozen=True, slots=True)
class Filler:
    """Sentences that are taken last, and words that are left out until everything else is in.

    The word lists are English; another language's text simply holds none of them.

    Attributes:
        questions: sentences that end in a question mark are taken last: in a dialogue the answer follows.
        short: sentences of at most this many words are taken last ("Sounds great!"); 0: none. Sentences of scripts
            without spaces count their characters.
        words: left out, unless they begin the turn.
    """

    questions: bool = True
    short: int = 3
    words: frozenset[str] = _WORDS

    def sentence(self, text: str) -> bool:
        """Whether the sentence (without its turn's header) is taken last."""
        bare = text.strip()
        if self.questions and bare.rstrip("\"'”’)»」』")[-1:] in (*_QUESTION,):
            return True
        words = bare.split()
        # "我喜欢北京。" is one word by white space and not short.
        return bool(self.short) and len(words) <= self.short and (bare.isascii() or len(bare) <= 4 * self.short)

    def word(self, text: str) -> bool:
        """Whether the word is left out."""
        bare = text.strip().strip(_EDGES)
        # "Hepatitis A" and "Tulsa, OK" are names.
        return bare.lower() in self.words and not bare.isupper()
