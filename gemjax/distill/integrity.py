"""Which sentences may be picked from, and what must come with them: a shortened sentence must not claim the opposite.

A sentence that does not fit is reduced to its best words. That is safe where every word only adds to the claim. It is
not where a word turns the claim round ("not", "only", "unless"), where the script does not show its words, where verb
and negation stand at the end, and in code and tables. Such a sentence is taken whole or not at all.
"""

# ruff: noqa: RUF001 - letters and punctuation of many scripts are meant

import dataclasses
from collections.abc import Sequence

import regex

from gemjax.distill.sentences import Span, code_regions
from gemjax.distill.turns import Turn

# Negations, limiters and conditions, lower case, by language. A list can be too long at no more than the cost of a
# sentence that is left out; a word that is missing can reverse a claim.
_TURNING = {
    "en": "no not none nothing nobody nowhere never neither nor cannot without only unless except excluding until till "
    "but however although though despite instead rather if whether hardly barely scarcely rarely seldom almost nearly "
    "few little least less fewer unable impossible unlikely fail fails failed failing refuse refuses refused deny "
    "denies denied reject rejects rejected decline declined lack lacks lacked stop stops stopped avoid avoids avoided "
    "forbid forbids forbidden prohibit prohibits prohibited prevent prevents prevented exclude excludes excluded "
    "cancel cancels cancelled canceled false wrong untrue allegedly supposedly reportedly formerly otherwise",
    "de": "nicht nichts kein keine keinen keinem keiner keines nie niemals niemand nirgends weder noch ohne nur außer "
    "ausser wenn falls sondern aber jedoch obwohl trotz kaum selten fast beinahe bis bloß lediglich sofern statt "
    "anstatt nein mitnichten keinesfalls keineswegs",
    "fr": "ne pas non aucun aucune jamais rien personne ni sans sauf seulement que si mais cependant quoique bien "
    "malgré plutôt guère presque rarement nul nulle point plus excepté hormis",
    "es": "no nunca jamás nada nadie ningún ninguno ninguna ni sin salvo excepto solo sólo solamente si sino pero "
    "aunque apenas casi tampoco hasta menos",
    "pt": "não nao nunca jamais nada ninguém nenhum nenhuma nem sem salvo exceto só somente apenas se mas embora quase "
    "até menos",
    "it": "non no mai niente nulla nessuno nessuna nessun né senza tranne salvo solo soltanto se ma però sebbene quasi "
    "neanche nemmeno neppure fino meno",
    "nl": "niet niets geen nooit niemand nergens noch zonder alleen slechts behalve tenzij als maar hoewel bijna "
    "nauwelijks zelden tot nee",
    "sv da no": "inte icke ej ikke ingen inget inga intet aldrig aldri utan uden uten bara bare kun endast men om hvis "
    "dersom varken hverken knappt knap nästan næsten nesten inte heller",
    "fi": "ei en et emme ette eivät älä ilman vain jos mutta paitsi ellei melkein tuskin koskaan",
    "pl cs sk": "nie ne není nejsou nikdy nigdy nic nikt nikdo bez tylko jen pouze jeśli jestli gdy když ale lecz "
    "chyba oprócz kromě prawie téměř żaden żadna żadne žádný ani",
    "ru uk": "не нет ни никогда ничего никто нигде без только лишь если но кроме хотя едва почти пока ні немає ніколи "
    "нічого ніхто тільки якщо крім але нельзя",
    "el": "δεν μη μην όχι ποτέ τίποτα κανείς καμία κανένα χωρίς μόνο αν εκτός αλλά σχεδόν ούτε",
    "ro hu": "nu nici niciodată nimic nimeni fără doar numai dacă dar nem ne sem soha semmi senki nélkül csak ha de "
    "hanem",
    "id ms": "tidak tak bukan jangan belum tanpa hanya kecuali jika kalau tetapi tapi hampir",
    "vi": "không chưa chẳng đừng chỉ nếu nhưng trừ hầu",
    "ar fa": "لا لم لن ليس ليست ليسوا ما غير بدون دون إلا فقط إذا لو لكن عدم أبدا أبداً كلا نه نیست نمی بدون فقط اگر "
    "مگر اما هرگز هیچ",
    "he": "לא אין אל בלי רק אם אלא אבל חוץ כמעט אף לעולם",
}
_WORDS = frozenset(word for words in _TURNING.values() for word in words.split())
_CONTRACTED = regex.compile(r"n['’]t$")
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*")
# Scripts whose sentences end in verb and negation, or that do not show where a word ends.
_FINAL = regex.compile(
    r"[\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Devanagari}\p{Bengali}"
    r"\p{Gurmukhi}\p{Gujarati}\p{Oriya}\p{Tamil}\p{Telugu}\p{Kannada}\p{Malayalam}\p{Sinhala}\p{Ethiopic}\p{Mongolian}"
    r"\p{Georgian}\p{Armenian}\p{Han}\p{Bopomofo}ğĞşŞıİ]"
)
# A call, an index or quoted code that white space divides: what is left of it would not be code.
_DIVIDED = regex.compile(r"`[^`\s]*\s|[\w\])]\((?:[^()\s]*+\s)[^()]*+\)|[\w\])]\[[^\[\]\s]*+\s|[{}<>=]=|=>|->|[;{]\s*$")
_ROW = regex.compile(r"\s*\|")
_RULE = regex.compile(r"[\s|:+-]*-[\s|:+-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Integrity:
    """What of one turn's sentences belongs together.

    Attributes:
        whole: whether each sentence is taken whole or not at all.
        needs: sentences that come with it: a table's header with a row, a code fence with a line.
    """

    whole: tuple[bool, ...]
    needs: tuple[tuple[int, ...], ...]


def turns_round(word: str) -> bool:
    """Whether the word, in any case, negates, limits or conditions what it stands by."""
    bare = word.lower()
    # French and Italian put the article or the particle before the apostrophe: n'a, l'ha.
    return bare in _WORDS or _CONTRACTED.search(bare) is not None or bare.startswith(("n'", "n’"))


def integrity(turn: Turn, spans: Sequence[Span]) -> Integrity:
    """What belongs together in a turn.

    Args:
        turn: the turn.
        spans: its sentences, as `sentences.sentences` gives them.

    Returns: a flag and a tuple of sentence numbers for each sentence.
    """
    text = turn.text
    code = code_regions(text)
    needs: list[tuple[int, ...]] = [()] * len(spans)
    whole = [_whole(text[max(a, turn.header if i == 0 else a) : b]) for i, (a, b) in enumerate(spans)]
    for first, last in code:
        inside = [i for i, (a, b) in enumerate(spans) if a >= first and b <= last]
        for i in inside:
            whole[i] = True
            needs[i] = tuple(dict.fromkeys((inside[0], inside[-1])))
    in_code = {i for i, line in enumerate(needs) if line}
    for rows in _tables(text, spans, in_code):
        header = rows[:2] if len(rows) > 1 and _RULE.fullmatch(text[slice(*spans[rows[1]])]) else rows[:1]
        for i in rows:
            whole[i] = True
            needs[i] = tuple(header)
    return Integrity(tuple(whole), tuple(needs))


def _whole(sentence: str) -> bool:
    if _FINAL.search(sentence) or _DIVIDED.search(sentence):
        return True
    return any(turns_round(match.group()) for match in _WORD.finditer(sentence))


def _tables(text: str, spans: Sequence[Span], code: set[int]) -> list[list[int]]:
    """Runs of at least two sentences that are rows of a table."""
    out: list[list[int]] = []
    run: list[int] = []
    for i, (start, stop) in enumerate(spans):
        if i not in code and _ROW.match(text, start, stop):
            run.append(i)
            continue
        out.append(run)
        run = []
    out.append(run)
    return [rows for rows in out if len(rows) > 1]
