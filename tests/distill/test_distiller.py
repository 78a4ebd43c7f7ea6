"""The distiller's promises: hard budget, original characters, whole graphemes, protection, monotony, bad input."""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import dataclasses
import unicodedata

import numpy as np
import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemjax.distill import DistillConfig, Distiller, EvidenceSelector, Filler, Multipliers, SelectorConfig, Turn
from gemjax.distill.baselines import LLMLingua2, RandomDrop, Truncation, self_information
from gemjax.distill.recipe import Recipe
from gemjax.distill.render import KeptSpan
from gemjax.distill.shortener import TextShortener
from gemjax.distill.turns import as_turns, read_turns
from gemjax.distill.units import is_unspaced, units_of
from gemjax.errors import ConfigError
from tests.distill.conftest import tiny_model

MODEL = tiny_model()
ENGLISH = [
    "Caroline: Hey Mel! I went to the support group yesterday, and it was so powerful. What about you?",
    "Melanie: Wow! That's great. I think the weather in May 2023 was really good because it rained once or twice.",
    "Caroline: I know. Since everybody goes there now, Dr. Smith still opens at 10:30 a.m. every single day.",
]
SCRIPTS = [
    "我喜欢北京的秋天，因为天气很好，人也不多。你呢？我们明天早上九点在学校门口见面吧。",
    "東京は好きです。でも大阪のほうが食べ物がおいしいと思います。明日は雨が降るかもしれません。",
    "مرحبا بالعالم، كيف حالك اليوم؟ ذهبت إلى السوق واشتريت الخبز والحليب والجبن والزيتون.",
    "Family 👩‍👩‍👧‍👦 and flags 🇫🇷🇩🇪 and skin 👍🏽 all at once, here they are 👩🏿‍🚀 in one line of text.",
    "Cafe\u0301 re\u0301sume\u0301 nai\u0308ve Zalgo t\u0336e\u0336x\u0336 with e\u0302\u0301 in it, as you see.",
    "हिन्दी में क्षत्रिय और विद्यार्थी लिखते हैं। नमस्ते दुनिया, आप कैसे हैं?",
    "Lone \ud800 surrogates \udfff in a text that nobody should have written, but somebody always does.",
]
RECIPES = {
    "fdtd": DistillConfig().recipe(),
    "selection": SelectorConfig().recipe(),
    # A narrow window: long texts take several, and few shapes compile.
    "paper": dataclasses.replace(DistillConfig.paper().recipe(), window=128),
    "query": dataclasses.replace(DistillConfig.paper().recipe(), loss="query", window=128),
    "knapsack": dataclasses.replace(Recipe(), value="knapsack", rank=True),
    "product": dataclasses.replace(Recipe(), value="product", keep=0.5, gap=2, fit="prefix"),
    "by turn": Recipe(),
}


def shortener(recipe):
    return TextShortener(recipe, MODEL, MODEL)


def selector(**settings):
    return EvidenceSelector(SelectorConfig(**settings), tokenizer=MODEL)


CHAT = [
    "Ann: Hey Mel! Good to see you again! That photo is so lovely!",
    "Mel: Thanks so much! It means a lot. I signed up for a pottery class in Oslo on 3 May.",
    "Ann: Wow, that's amazing! You're the best! Good to see you again!",
]


def scored(texts):
    return [
        Turn(text, header=max(text.find(": ") + 2, 0) if ": " in text[:12] else 0, score=-i)
        for i, text in enumerate(texts)
    ]


def check(out, turns, budget):
    """What holds for every method, text and budget."""
    listed = as_turns(turns)
    assert out.tokens_after == MODEL.count(out.text) <= budget
    if out.status == "unchanged":
        assert out.text == "\n".join(turn.text for turn in listed)
    for before, after in zip(out.spans[:-1], out.spans[1:], strict=True):
        assert (before.turn, before.stop) <= (after.turn, after.start)
    position, last = 0, None
    for turn, start, stop in out.spans:
        text = listed[turn].text
        piece = text[start:stop]
        assert piece
        if last is not None and out.status != "unchanged":
            fused = last.turn == turn and not out.text[position - 1].isspace() and not piece[0].isspace()
            dropped = text[last.stop : start] if last.turn == turn else "\n"
            meet = all(unicodedata.category(c)[0] in "LMN" or c == "_" for c in (out.text[position - 1], piece[0]))
            between = "\n" if "\n" in dropped else " " if meet or any(c.isspace() for c in dropped) else ""
            between = between if fused or last.turn != turn else ""
            assert out.text.startswith(between + piece, position)
            position += len(between)
        position, last = out.text.index(piece, position) + len(piece), KeptSpan(turn, start, stop)
        clusters = {match.end() for match in regex.finditer(r"\X", listed[turn].text)} | {0}
        assert start in clusters
        assert stop in clusters
    assert position == len(out.text) or out.status == "unchanged"
    kept = np.flatnonzero(out.kept)
    for i in kept:
        a, b = out.starts[i], out.stops[i]
        text = listed[out.turn[i]].text[a:b]
        inside = any(t == out.turn[i] and s <= a and b <= e for t, s, e in out.spans)
        assert inside or not text.strip() or text != text.strip()  # white space at a turn's edge is trimmed
    assert len(out.kept) == len(out.sensitivity) == len(out.scores) == len(out.starts)


@pytest.mark.parametrize("name", RECIPES)
def test_every_preset_keeps_its_promises_in_every_script(name):
    distiller = shortener(RECIPES[name])
    for texts in (ENGLISH, SCRIPTS, ["".join(ENGLISH)], [SCRIPTS[3]]):
        turns = scored(texts)
        for budget in (1, 7, 40, 90):
            check(distiller.distill(turns, budget, "When did Caroline go?"), turns, budget)


TEXTS = st.lists(st.text(st.sampled_from("aB1 .,:?\n。你のمक्षé\u0301👩\u200d🏽🇫🇷\ud800"), max_size=40), max_size=4)


@example(["\u3002 \u0301111111"], 2, "by turn")  # a blank that carries an accent is one character
@settings(deadline=None, max_examples=60)
@given(TEXTS, st.integers(1, 60), st.sampled_from(sorted(RECIPES)))
def test_any_text_any_budget(texts, budget, name):
    check(shortener(RECIPES[name]).distill(texts, budget, "When did Caroline go?"), texts, budget)


@pytest.mark.parametrize("side", ["first", "last", "retrieved"])
def test_truncation_keeps_a_side(side):
    turns = scored(ENGLISH)
    out = Truncation(MODEL, side).distill(turns, 30)
    check(out, turns, 30)
    assert out.tokens_after >= 25
    if side == "last":
        assert ENGLISH[-1].endswith(out.text.splitlines()[-1])
    else:
        assert ENGLISH[0].startswith(out.text.splitlines()[0])
    with pytest.raises(ConfigError, match="side"):
        Truncation(MODEL, "middle")


def test_the_rivals_share_the_interface():
    turns = scored(ENGLISH)
    for method in (RandomDrop(MODEL), self_information(MODEL)):
        out = method.distill(turns, 40)
        check(out, turns, 40)
        assert method.distill(turns, 40).text == out.text
        assert out.tokens_after > 0
    assert RandomDrop(MODEL, seed=1).distill(turns, 40).text != RandomDrop(MODEL).distill(turns, 40).text
    with pytest.raises((ConfigError, OSError)):
        LLMLingua2(MODEL, weights="/nowhere")


HELD = {"not", "but", "although", "nobody", "no"}
WORDS = [word for text in (*ENGLISH, *SCRIPTS) for word in text.split()]
DIALOGUES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join), min_size=1, max_size=3)


def ends(units, head, tail, longer_than):
    """Of each sentence, the units that hold one of its first or last tokens, or all of a short one."""
    out = {}
    for sentence in np.unique(units.sentence):
        own = np.flatnonzero(units.sentence == sentence)
        tokens = [unit for unit in own for _ in range(units.cost[unit])]
        short = len(tokens) <= longer_than
        out[sentence] = set(own), set(own) if short else {*tokens[:head], *tokens[len(tokens) - tail :]}
    return out


@settings(deadline=None, max_examples=60)
@given(DIALOGUES, st.integers(1, 90), st.sampled_from(["token", "word"]))
def test_protected_units_outlive_the_others_of_their_sentence(texts, budget, unit):
    recipe = dataclasses.replace(DistillConfig.paper().recipe(), unit=unit, fit="trim")
    out = shortener(recipe).distill(texts, budget)
    units = units_of(read_turns(as_turns(texts), MODEL), unit)
    kept = set(np.flatnonzero(out.kept[units.first[:-1]]))
    pieces = [texts[t][a:b] for t, a, b in zip(units.turn, units.start, units.stop, strict=True)]
    for own, protected in ends(units, 3, 3, 8).values():
        # A sentence of a script without blanks is cut off where it does not fit.
        if kept & own - protected and not any(is_unspaced(pieces[i]) for i in own):
            assert protected <= kept


@settings(deadline=None, max_examples=60)
@given(
    DIALOGUES,
    st.integers(1, 120),
    st.sampled_from([1, 2, 7, 40]),
    st.sampled_from(["fdtd", "paper", "selection", "by turn"]),
)
def test_a_larger_budget_drops_nothing(texts, budget, more, name):
    """Not a sentence, and not a token of one; `fit="skip"` and the knapsack promise neither, nor does a text with
    sentences that are left out because they must stay whole."""
    if name != "paper":
        plain = ([w for w in t.split() if w.isascii() and w.strip(".,!?").lower() not in HELD] for t in texts)
        texts = [" ".join(words) or "x" for words in plain]
    distiller = shortener(RECIPES[name])
    few, many = (distiller.distill(texts, b).kept for b in (budget, budget + more))
    assert (few <= many).all()


def test_a_text_within_the_budget_comes_back_as_it_is():
    distiller = Distiller(MODEL)
    for text in ("One two.", "", " \n ", "x"):
        out = distiller.distill(text, 50)
        assert out.text == text
        assert out.status == ("unchanged" if text else "empty")
        assert out.bound == 0
        assert out.ratio == 1
    assert distiller.distill([], 5).status == "empty"
    assert distiller.distill(" \n" * 300, 5).text == ""


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "5", None])
def test_a_bad_budget_is_refused(budget):
    for method in (Distiller(MODEL), selector(), Truncation(MODEL), RandomDrop(MODEL)):
        with pytest.raises(ConfigError, match="budget"):
            method.distill("text", budget)


def test_bad_turns_and_configs_are_refused():
    distiller = Distiller(MODEL)
    for bad in (3, b"bytes", [1], [None]):
        with pytest.raises(TypeError, match="turn"):
            distiller.distill(bad, 5)
    with pytest.raises(ValueError, match="header"):
        Turn("ab", header=3)
    with pytest.raises(ValueError, match="score"):
        Turn("ab", score=float("nan"))
    for change in ({"keep": 2}, {"smoothing": 4}, {"order": "x"}, {"gap": -1}, {"unit": "best"}, {"window": 1}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            dataclasses.replace(DistillConfig(), **change)
    with pytest.raises(ConfigError, match="fit"):
        SelectorConfig(fit="best")
    with pytest.raises(ConfigError, match="loss"):
        TextShortener(Recipe(loss="text"), MODEL)
    with pytest.raises(ConfigError, match="digit"):
        Multipliers(digit=0)


def test_headers_stay_while_anything_of_their_turn_does():
    out = Distiller(MODEL).distill(scored(ENGLISH), 60)
    assert out.status == "compressed"
    for line in out.text.splitlines():
        assert line.startswith(("Caroline: ", "Melanie: "))


def test_turn_order_is_the_retrievers_and_text_order_the_conversations():
    turns = [dataclasses.replace(turn, score=float(i)) for i, turn in enumerate(scored(ENGLISH))]
    out = Distiller(MODEL).distill(turns, 90)
    assert {span.turn for span in out.spans} <= {1, 2}
    assert 2 in {span.turn for span in out.spans}
    assert [span.turn for span in out.spans] == sorted(span.turn for span in out.spans)


def test_a_query_orders_turns_without_scores():
    class Words:
        name, dim = "words", 2

        def encode(self, texts):
            return np.array([[1.0, 0.0] if "Smith" in text else [0.0, 1.0] for text in texts], np.float32)

    for method in (Distiller(MODEL, encoder=Words()), EvidenceSelector(tokenizer=MODEL, encoder=Words())):
        assert "Smith" in method.distill(ENGLISH, 90, "Who is Smith?").text
        # A single text is ordered by its sentences.
        assert "Smith" in method.distill(" ".join(ENGLISH), 90, "Who is Smith?").text


def test_turns_that_nobody_scored_come_after_the_others():
    turns = [Turn(ENGLISH[0]), dataclasses.replace(scored(ENGLISH)[1], score=-5.0), Turn(ENGLISH[2])]
    for method in (Distiller(MODEL), selector(), Truncation(MODEL, "retrieved")):
        assert {span.turn for span in method.distill(turns, 40).spans} == {1}


def test_filler_words_stay_in_a_sentence_that_is_itself_taken_last():
    recipe = dataclasses.replace(RECIPES["selection"], multipliers=None)
    text = "Caroline went to the group in May with Ann. Really so great!"
    out = shortener(recipe).distill(text, MODEL.count(text) - 1)
    assert out.text == "Caroline went to group in May with Ann. Really so great!"


def test_filler_goes_last():
    filler = Filler()
    assert filler.sentence("What about you?")
    assert filler.sentence("Sounds great!")
    assert not filler.sentence("I went to Rome.")
    assert not filler.sentence("我喜欢北京的秋天因为天气很好。")
    assert filler.sentence("你呢？")
    assert filler.word(" Really,")
    assert not filler.word(" Rome")
    out = selector().distill(scored(ENGLISH), 75)
    assert "What about you?" not in out.text
    assert "Wow!" not in out.text


def test_multipliers_take_the_larger_of_syntax_and_content():
    got = Multipliers().factors([" but", " But", ":", "\n", ".", " 1990.", " Rome", " dog", " 2nd:"])
    np.testing.assert_allclose(got, [1.2, 1.3, 1.5, 1.5, 1.3, 1.4, 1.3, 1, 1.5])


def test_multipliers_and_scores_are_what_pruning_goes_by():
    recipe = dataclasses.replace(RECIPES["selection"], filler=None)
    text = "Caroline: I know. Everybody goes there now, Dr. Smith still opens at 10:30 a.m. every single day."
    for multipliers in (None, Multipliers(digit=3.0)):
        out = shortener(dataclasses.replace(recipe, multipliers=multipliers)).distill(text, 30)
        units = units_of(read_turns(as_turns(text), MODEL), "word")
        words = [text[a:b] for a, b in zip(units.start, units.stop, strict=True)]
        expected = np.ones(len(units)) if multipliers is None else multipliers.factors(words)
        np.testing.assert_allclose(out.scores, np.repeat(expected, units.cost))
    # With the other things equal, the sentence's numbers are what is left of it.
    assert "10:30" in out.text


def test_units_are_words_or_graphemes():
    def texts(text, kind):
        units = units_of(read_turns(as_turns(text), MODEL), kind)
        assert units.first[-1] == len(MODEL.tokenize(text).ids)
        return [text[a:b] for a, b in zip(units.start, units.stop, strict=True)]

    words = texts("It's well-known, 3.14 at 10:30, okay.", "word")
    assert [w.strip() for w in words] == ["It's", "well-known", ",", "3.14", "at", "10:30", ",", "okay", "."]
    assert texts("北京好", "word") == ["北", "京", "好"]
    assert texts("👩‍👩‍👧‍👦e\u0301", "token") == ["👩‍👩‍👧‍👦", "e\u0301"]
    assert texts("a\r\nb", "token") == ["a", "\r\n", "b"]


def test_bound_covers_the_first_order_change():
    for name in ("fdtd", "paper"):
        out = shortener(RECIPES[name]).distill(scored(ENGLISH), 40)
        assert abs(out.change) <= out.bound * (1 + 1e-5)
        assert out.bound > 0
        assert out.bound == pytest.approx(MODEL.config.hidden_size**0.5 * out.sensitivity[~out.kept].sum(), rel=1e-5)
    found = MODEL.scores([MODEL.tokenize(text).ids for text in ENGLISH])
    out = Distiller(MODEL).distill(scored(ENGLISH), 40)
    products = np.concatenate([scores.products for scores in found])
    assert out.change == pytest.approx(-products[~out.kept].sum(), rel=1e-3)


def test_bound_covers_small_ablations_of_the_model():
    """In the limit the change is the first-order one: at 1 % what is left is second order."""
    text = " ".join(ENGLISH)
    out = Distiller(MODEL, DistillConfig.paper()).distill(text, 40)
    ids = MODEL.tokenize(text).ids
    before = MODEL.ablated_loss(ids, ~out.kept, 0.0)
    share = 0.01
    change = MODEL.ablated_loss(ids, ~out.kept, share) - before
    # float32 losses of some 600 nats differ by their rounding, 600 * 2^-23, whatever the share.
    assert abs(change) <= share * out.bound + 1e-4 * before
    assert abs(change - share * out.change) <= 0.3 * abs(share * out.change) + 1e-4 * before


def test_scores_are_remembered_by_turn():
    distiller = Distiller(MODEL)
    distiller.distill(scored(ENGLISH), 40)
    read = MODEL.tokens_read
    distiller.distill(scored(ENGLISH[::-1]), 30)
    assert MODEL.tokens_read == read


@pytest.mark.parametrize("text", ["她在上海的妹妹也喜欢我的烤鸭和茶叶。", "ฉันชอบดื่มชาตอนเช้ากับเพื่อนของฉัน"])
def test_a_sentence_without_blanks_is_whole_or_absent(text):
    for budget in range(1, MODEL.count(text), 3):
        for method in (Distiller(MODEL), selector()):
            assert method.distill(text, budget).text == ""
            assert method.distill([text, "Bo."], budget).text in ("", "Bo.")


def test_a_header_or_a_full_stop_alone_is_not_kept():
    turns = [Turn("Cid: Marvellous!", header=5, score=1.0), Turn("Ann: Yes, on Monday at the harbour.", 5, 0.0)]
    for budget in range(1, 30):
        out = selector(filler=None).distill(turns, budget)
        for line in out.text.splitlines():
            assert any(map(str.isalnum, line.split(": ", 1)[-1].strip("CidAn:")))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"score": float("nan")}, ValueError),
        ({"score": 10**400}, ValueError),
        ({"score": True}, ValueError),
        ({"score": 1 + 2j}, ValueError),
        ({"header": True}, TypeError),
        ({"header": 1.0}, TypeError),
    ],
)
def test_bad_turns_are_refused(bad, error):
    with pytest.raises(error, match=next(iter(bad))):
        Turn("abc", **bad)


@pytest.mark.parametrize("query", [5, ["a"], b"x"])
def test_a_query_must_be_a_string(query):
    with pytest.raises(TypeError, match="query must be a string or None"):
        Distiller(MODEL).distill("a b c", 1, query)


@pytest.mark.parametrize("query", ["", " ", "?!", "🎨"])
def test_a_query_without_a_word_asks_nothing(query):
    turns = ["Ann: I paint. The lake is blue.", "Bob: I climb mountains in May."]
    silent = Distiller(MODEL).distill(turns, 12)
    assert Distiller(MODEL).distill(turns, 12, query).text == silent.text


def test_large_scores_keep_their_order():
    turns = [Turn("Ann: I paint.", 5, -1e308), Turn("Bob: I climb.", 5, 1e308), Turn("Cid: I sing.", 5, 0.0)]
    out = selector().distill(turns, MODEL.count("Bob: I climb."))
    assert out.text == "Bob: I climb."


@pytest.mark.parametrize(
    "change",
    [{"filler": "x"}, {"multipliers": 3}, {"headers": 7}, {"impute": "no"}, {"keep": True}, {"lexical": 1e308}],
)
def test_bad_settings_are_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        Recipe(**change)
    assert SelectorConfig(lexical=np.float32(1)).lexical == 1
    with pytest.raises(ConfigError, match="config must be a SelectorConfig or None"):
        EvidenceSelector(DistillConfig(), tokenizer=MODEL)
    with pytest.raises(ConfigError, match="config must be a DistillConfig or None"):
        Distiller(MODEL, {})


def test_without_a_question_new_words_come_before_pleasantries():
    out = selector().distill(CHAT, MODEL.count(CHAT[1]) - 20)
    assert "pottery class in Oslo on 3 May" in out.text and "again" not in out.text


def test_without_a_question_scores_decide_where_there_are_some():
    turns = [Turn(text, score=score) for text, score in zip(CHAT, (0.1, 0.2, 0.9), strict=True)]
    text = selector().distill(turns, MODEL.count(CHAT[2])).text
    assert "Good to see you again" in text and "pottery" not in text
