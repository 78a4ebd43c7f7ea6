"""A shortened text says nothing that the original does not: whole words, no claim turned round, rows with headers.

The oracles split by white space and by hand: they share nothing with the rules they check.
"""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.distill import EvidenceSelector, SelectorConfig
from tests.distill.conftest import tiny_model

MODEL = tiny_model()
QUIET = EvidenceSelector(tokenizer=MODEL)
EDGE = ".,!?;:…\"'”’»()[]{}*—–-“‘«¿¡،؛।"


def bare(word: str) -> str:
    return word.strip(EDGE)


def words(text: str) -> set[str]:
    """Every run of letters, marks and what stands between them, as white space and dashes leave it."""
    for dash in "—–…":
        text = text.replace(dash, " ")
    return {bare(word) for word in text.replace("--", " ").split()} - {""}


def shortened(text: str, step: int = 1) -> list[str]:
    """What the distiller makes of it at every budget below its length."""
    return [QUIET.distill(text, budget).text for budget in range(1, MODEL.count(text), step)]


PLAIN = {
    "address": "See https://e.org/a?b=c#page for the plan, or write to ann.lee+x@mail.example.org about it today.",
    "path": r"The log lies in /var/log/app/err_2.log and the copy in C:\Users\ann\file.txt since the move on Monday.",
    "number": "It cost $1,250.00 in 2023, 3.14 times the 10:30 train at -12.5% from 192.168.0.1 that day in Oslo.",
    "identifier": "Call foo.bar_baz(x) and Vec::new() from the main loop, then read self._items[0].name for its value.",
    "accents": "Die Äpfel für Jörg kosten zwölf Öre, dazu zwei cafe\u0301s und ein re\u0301sume\u0301 aus Malmö.",
    "russian": "Вчера команда обсудила новый бюджет, и директор утвердил расходы на ремонт склада в марте.",
    "greek": "Χθες η ομάδα συζήτησε τον νέο προϋπολογισμό και ο διευθυντής ενέκρινε τα έξοδα για την αποθήκη.",
    "arabic": "اجتمع الفريق يوم الأحد لمناقشة الميزانية وقررت المديرة تأجيل المشروع حتى شهر مارس في المدينة.",
    "dashes": "The harbour—quiet in May—opens at nine, and the well-known ferry leaves pier seven soon after that.",
}


@pytest.mark.parametrize("kind", PLAIN)
def test_words_numbers_addresses_and_code_are_whole_or_absent(kind: str) -> None:
    text = PLAIN[kind]
    results = shortened(text)
    assert any(results)
    for out in results:
        assert words(out) <= words(text), out


VOCABULARY = sorted(set().union(*map(words, PLAIN.values())) - {"حتى", "and"})


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(VOCABULARY), min_size=4, max_size=20), st.integers(1, 60))
def test_any_mixture_of_words_comes_back_as_whole_words(chosen: list[str], budget: int) -> None:
    text = " ".join(chosen) + "."
    assert words(QUIET.distill(text, budget).text) <= words(text)


CLAIMS = {
    "en": ["The board has not approved the merger yet.", "Smoking is no longer allowed in the east wing of the house."],
    "contracted": ["The contract doesn't cover damage from floods in the lower rooms.", "We can’t ship it in May."],
    "limiter": ["Only the treasurer may sign payments above one thousand.", "It runs daily except on public holidays."],
    "condition": ["The deposit is returned unless the keys are lost.", "Pay the invoice if the goods arrive on time."],
    "verb": [
        "The court refused the appeal of the second claimant.",
        "The upload failed on the third day of the trial.",
    ],
    "de": ["Der Vorstand hat die Fusion nicht genehmigt.", "Im Ostflügel darf niemand mehr rauchen."],
    "fr": ["Le conseil n'a pas approuvé la fusion.", "Personne ne fume dans l'aile est."],
    "es": ["La junta no ha aprobado la fusión todavía.", "El pago se hace solo con dos firmas."],
    "ru": ["Совет не одобрил слияние компаний.", "Платежи проходят только с двумя подписями."],
    "sv": ["Styrelsen har inte godkänt sammanslagningen.", "Ingen röker i östra flygeln."],
    "ar": ["لم يوافق المجلس على الاندماج بعد.", "الدفع فقط بتوقيعين من المدير."],
    "ja": ["取締役会は合併をまだ承認していません。", "東棟ではもう喫煙できません。"],
    "ko": ["이사회는 합병을 승인하지 않았습니다.", "동관에서는 담배를 피울 수 없습니다."],
    "hi": ["बोर्ड ने विलय को मंजूरी नहीं दी।", "पूर्वी भवन में धूम्रपान मना है।"],
    "zh": ["董事会还没有批准合并。", "东楼不再允许吸烟。"],
    "th": ["คณะกรรมการยังไม่อนุมัติการควบรวม", "ห้ามสูบบุหรี่ในปีกตะวันออก"],
    "tr": ["Yönetim kurulu birleşmeyi onaylamadı.", "Doğu kanadında sigara içilmez artık."],
}


@pytest.mark.parametrize("language", CLAIMS)
def test_a_sentence_that_a_word_turns_round_is_whole_or_absent(language: str) -> None:
    joiner = "" if language in ("ja", "zh") else " "
    first, second = CLAIMS[language]
    for text in (first, f"{first}{joiner}{second}", f"{second}{joiner}{first}"):
        for out in shortened(text):
            rest = out
            for claim in (first, second):
                rest = rest.replace(claim, "")
            assert not rest.strip(), (out, text)


def test_filler_words_stay_in_a_sentence_that_must_be_whole() -> None:
    text = "It was not just a loan. The really long walk was very nice. He is not very well today."
    for out in shortened(text):
        assert ("not" in out.split()) == any(
            s in out for s in ("It was not just a loan.", "He is not very well today.")
        )
    assert any("long walk" in out and "really" not in out for out in shortened(text))


def test_names_of_one_capital_letter_are_no_filler() -> None:
    out = QUIET.distill("Ann has hepatitis A and a dog. The river is so wide here.", 28).text
    assert "hepatitis A" in out and " a dog" not in out


TABLE = (
    "Prices of May:\n| item | price |\n|---|---|\n| apples | 3 |\n| pears | 4 |\n| plums | 5 |\n\nThanks for asking."
)


def test_a_row_of_a_table_brings_its_header() -> None:
    seen = set()
    for out in shortened(TABLE):
        rows = [line for line in out.splitlines() if line.startswith("|")]
        seen.add(len(rows))
        assert not rows or rows[:2] == ["| item | price |", "|---|---|"]
        assert set(rows) <= set(TABLE.splitlines())
    assert {0, 3, 5} <= seen


CODE = "Run this now:\n```python\nif not rows:\n    raise ValueError('empty file')\nprint(rows)\n```\nIt prints rows."


def test_lines_of_code_are_whole_and_fenced() -> None:
    lines = CODE.splitlines()
    for out in shortened(CODE):
        inside = [line for line in out.splitlines() if line in lines[1:6]]
        assert not inside or (inside[0] == "```python" and inside[-1] == "```"), out
        assert all(
            line.strip() in {x.strip() for x in lines} or words(line) <= words(CODE) for line in out.splitlines()
        )


def test_code_in_a_sentence_is_not_divided() -> None:
    text = "Use raise ValueError('empty file') there and go on with the work on the parser in the morning."
    for out in shortened(text):
        assert "ValueError" not in out or "ValueError('empty file')" in out


def test_prefix_leaves_out_what_does_not_fit_even_alone() -> None:
    prefix = EvidenceSelector(SelectorConfig(fit="prefix"), tokenizer=MODEL)
    text = "Ann went to the harbour in May with Bob and Cid."
    assert prefix.distill(text, 8).text == ""
    assert QUIET.distill(text, 8).text != ""


SCRIPTS = "aB1 .,:?\n你のमक्षé\u0301👩\u200d🏽'\"()/—_@"


@settings(deadline=None, max_examples=80)
@given(st.text(st.sampled_from(SCRIPTS), max_size=60), st.integers(1, 40))
def test_no_letter_is_parted_from_its_marks_or_fused_with_another(text: str, budget: int) -> None:
    """By hand: every run of letters, digits and marks in the result is one in the text."""

    def runs(value: str) -> list[str]:
        flat = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in value)
        return flat.split()

    given_runs = set(runs(text))
    for run in runs(QUIET.distill(text, budget).text):
        assert run in given_runs
