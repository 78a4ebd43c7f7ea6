"""remember, recall, ask: what comes back, what it cost, and what happens when something is missing."""

import datetime as dt
import shutil
from pathlib import Path

import numpy as np
import pytest

from gemjax.coremem import (
    CoreMem,
    CoreMemConfig,
    PromptTemplate,
    Sampling,
    UnansweredError,
)
from gemjax.distill import DistillConfig, Distiller
from gemjax.errors import ConfigError, GenerationError, MemoryBankError, StateError
from gemjax.memory import MemoryBank, MemoryConfig
from tests.coremem.scripted import ScriptedGenerator
from tests.distill.conftest import tiny

__all__ = ["tiny"]

NOW = dt.datetime(2024, 2, 1, 12, 0, tzinfo=dt.UTC)
DIALOGUE = [
    {"speaker": "Ann", "text": "I paint rivers now. My teacher is called Vera.", "time": "2023-05-08", "id": "a1"},
    {"speaker": "Bob", "text": "I climb mountains. The dog is called Rex.", "time": "2023-05-08"},
    {"speaker": "Ann", "text": "We moved to Oslo. It rains.", "time": "2023-06-01"},
    {"speaker": "Bob", "text": "My dog eats shoes. I sold the car.", "time": "2023-06-02"},
    {"speaker": "Ann", "text": "I gave up painting. I sing in a choir.", "time": "2023-09-10"},
    *({"speaker": "Bob", "text": f"Nothing new today {n}.", "time": "2023-10-01"} for n in range(8)),
]


@pytest.fixture
def memory(hashing_encoder) -> CoreMem:
    out = CoreMem(encoder=hashing_encoder, generator=ScriptedGenerator(), clock=lambda: NOW)
    out.remember(DIALOGUE)
    return out


def test_what_is_remembered(memory):
    first = memory.bank.page(limit=1)[0]
    assert first.text == "Ann: I paint rivers now. My teacher is called Vera."
    assert first.session == "2023-05-08" and first.happened_at == dt.datetime(2023, 5, 8, tzinfo=dt.UTC)
    assert first.created_at == NOW and first.metadata == {"place": 0, "speaker": "Ann", "turn": "a1"}
    again = memory.remember(DIALOGUE[:3])
    assert again.added == 0 and again.known == 3 and len(memory) == 13
    assert memory.bank.get(again.ids[1]).text.startswith("Bob: I climb")
    # The same words at another time, in another scope or session, or said twice are other turns.
    assert memory.remember([{**DIALOGUE[0], "time": "2023-05-09"}]).added == 1
    assert memory.remember(DIALOGUE[:1], scope="ann").added == 1
    assert memory.remember(DIALOGUE[:1], session="s").added == 1
    assert memory.remember([DIALOGUE[0], DIALOGUE[0]]).added == 1
    # A dialogue without dates can be handed over again tomorrow.
    assert memory.remember(["hello there", "bye now"]).added == 2
    memory._clock = lambda: NOW + dt.timedelta(days=1)
    assert memory.remember(["hello there", "bye now", "one more"]).added == 1


def test_recall_gives_whole_sentences_with_where_they_are_from(memory):
    found = memory.recall("What is the dog of Bob called", budget=40)
    assert found.ledger.tokens_kept <= 40 < found.ledger.tokens_retrieved
    # What is short comes last: here it has no room.
    assert "[8 May 2023] Bob: The dog is called Rex." in found.text.split("\n")
    part = next(part for part in found.evidence if "Rex" in part.text)
    assert (part.speaker, part.session, part.whole) == ("Bob", "2023-05-08", False)
    assert part.happened_at == dt.datetime(2023, 5, 8, tzinfo=dt.UTC) and part.cosine > 0 and part.lexical > 0
    assert [part.text[start:stop] for start, stop in part.spans] == ["Bob:", " The dog is called Rex."]
    for part in found.evidence:
        kept = "".join(part.text[start:stop] for start, stop in part.spans)
        assert kept.replace(" ", "") == part.kept.replace(" ", "")
        assert part.kept.endswith(".")
    # In the order of the dialogue, each line one memory; what is left out comes best first.
    dates = [part.happened_at for part in found.evidence]
    assert dates == sorted(dates) and len(found.text.split("\n")) == len(dates) == found.ledger.memories_kept
    assert [part.rank for part in found.left_out] == sorted(part.rank for part in found.left_out)
    assert len(found.evidence) + len(found.left_out) == found.ledger.memories_retrieved == 13
    assert (
        found.asked_at == NOW and found.supported and set(found.ledger.milliseconds) == {"encode", "search", "distil"}
    )


def test_everything_comes_when_it_fits_and_turns_of_one_moment_stay_in_order(memory):
    found = memory.recall("anything new", budget=10_000)
    lines = found.text.split("\n")
    assert [line.partition("] ")[2] for line in lines] == [f"{t['speaker']}: {t['text']}" for t in DIALOGUE]
    assert found.ledger.tokens_kept == found.ledger.tokens_retrieved and not found.left_out
    assert all(part.whole for part in found.evidence)


@pytest.mark.parametrize("budget", [1, 5, 12, 20, 33, 60, 100])
def test_the_budget_is_hard(memory, budget):
    for template in (PromptTemplate(), PromptTemplate(memory="{number}: {date} {weekday} {text} ({session}) ---")):
        memory.config = CoreMemConfig(prompt=template)
        found = memory.recall("painting rivers", budget)
        assert memory.distiller.tokenizer.count(found.text) == found.ledger.tokens_kept <= budget


def test_an_answer_its_sources_and_its_bill(memory):
    answer = memory.ask("What does Ann paint?", budget=60, reference_date="2023-12-24")
    (prompt,) = memory.generator.prompts
    assert list(answer.messages) == prompt and prompt[1]["content"].endswith("Question: What does Ann paint?")
    assert "Today is 24 December 2023." in prompt[1]["content"] and answer.recollection.text in prompt[1]["content"]
    assert str(answer) == "rivers" and answer.finish_reason == "stop" and not answer.abstained
    assert answer.model == "scripted" and not answer.empty and not answer.cut and answer.reason == ""
    assert answer.sources == answer.recollection.evidence
    bill = answer.ledger
    assert bill.tokens_prompted == memory.generator.count_tokens(prompt) and bill.tokens_answered == 1
    assert bill.tokens_kept <= 60 and bill.memories_in_bank == 13 and bill.memories_cut == 0
    assert set(bill.milliseconds) == {"encode", "search", "distil", "prompt", "generate"}
    assert bill.peak_memory_bytes is None or bill.peak_memory_bytes > 10_000_000
    assert answer.to_dict()["recollection"]["evidence"][0]["text"] == answer.sources[0].text


def test_scopes_and_conditions(memory):
    memory.remember([("Cy", "The code is 42.")], scope=("cy", "desk"), happened_at="2023-01-01")
    assert [part.text for part in memory.recall("code", scope="cy").evidence] == ["Cy: The code is 42."]
    nothing = memory.ask("code", scope=("cy", "phone"))
    assert nothing.abstained and nothing.reason == "there is no memory in scope 'cy/phone'" and not nothing.sources
    assert nothing.text == memory.config.unanswered and not memory.generator.prompts and nothing.model == ""
    only = memory.recall("dog", where={"speaker": "Bob", "happened_at": {"lt": "2023-06-01"}})
    assert [part.text[:12] for part in only.evidence] == ["Bob: I climb"]
    none = memory.recall("dog", where={"speaker": "Zoe"})
    assert none.note == "no memory meets the conditions" and not none.supported
    empty = CoreMem(encoder=len, generator=ScriptedGenerator()).ask("who?")
    assert empty.abstained and empty.reason == "nothing is remembered yet"


def test_it_abstains_below_the_support_that_is_asked_for(memory):
    question = "Ann: I paint rivers now."
    support = memory.recall(question).support
    assert 0 < support < 1
    memory.config = CoreMemConfig(support=support + 1e-6)
    answer = memory.ask(question)
    assert answer.abstained and answer.reason == "nothing that was recalled supports an answer" and answer.sources
    assert not answer.recollection.supported and not memory.generator.prompts
    memory.config = CoreMemConfig(support=support)
    assert not memory.ask(question).abstained


def test_a_model_that_does_not_know_abstains(memory):
    memory.generator = ScriptedGenerator("I don\u2019t know.")
    answer = memory.ask("Who is the king?")
    assert answer.abstained and answer.text == "I don\u2019t know." and "finds no answer" in answer.reason


@pytest.mark.parametrize(
    ("reply", "finish", "empty", "cut", "reason"),
    [
        (" ", "stop", True, False, "the model said nothing"),
        ("rivers and", "length", False, True, "the answer is cut: raise max_tokens"),
        ("", "length", True, True, "the answer is cut: raise max_tokens"),
        ("", "content_filter", True, False, "the endpoint withheld the answer"),
    ],
)
def test_empty_and_cut_answers_say_so(memory, reply, finish, empty, cut, reason):
    memory.generator = ScriptedGenerator(reply, finish=finish)
    answer = memory.ask("What does Ann paint?")
    assert (answer.empty, answer.cut, answer.reason, answer.abstained) == (empty, cut, reason, False)


def test_a_generator_that_fails_loses_nothing(memory):
    memory.generator = ScriptedGenerator(fails="the endpoint is out of quota")
    with pytest.raises(GenerationError, match="out of quota") as caught:
        memory.ask("What does Ann paint?")
    assert isinstance(caught.value, UnansweredError)
    assert caught.value.recollection.text == memory.recall("What does Ann paint?").text
    assert list(caught.value.messages) == memory.generator.prompts[0]
    # The kept prompt can go to another one.
    assert ScriptedGenerator().generate(caught.value.messages).text == "rivers"
    memory.generator = ScriptedGenerator(lambda prompt: 1 / 0)
    with pytest.raises(UnansweredError, match="division by zero"):
        memory.ask("What does Ann paint?")


def test_a_prompt_beyond_the_context_loses_whole_memories_the_least_relevant_first(memory):
    whole = memory.ask("What does Ann paint?")
    longest = memory.generator.count_tokens(whole.messages)
    sampling = Sampling(max_tokens=10)
    memory.generator = ScriptedGenerator(window=longest - 5)
    answer = memory.ask("What does Ann paint?", sampling=sampling)
    assert memory.generator.count_tokens(answer.messages) + 10 <= longest - 5
    gone = answer.ledger.memories_cut
    assert gone > 0 and answer.ledger.memories_kept == whole.ledger.memories_kept - gone
    worst = sorted(part.rank for part in whole.sources)[-gone:]
    assert sorted(part.rank for part in answer.recollection.left_out if part.rank in worst) == worst
    assert {part.text for part in answer.sources} < {part.text for part in whole.sources}
    assert all(part.kept == "" and part.spans == () for part in answer.recollection.left_out)
    # One memory more would not have fitted.
    assert answer.ledger.tokens_kept < whole.ledger.tokens_kept


def test_a_question_that_fills_the_context_is_refused_with_its_evidence(memory):
    memory.generator = ScriptedGenerator(window=60)
    with pytest.raises(
        UnansweredError, match="leaves no room for a memory in scripted's context of 60 tokens"
    ) as caught:
        memory.ask("What " * 100, sampling=Sampling(max_tokens=10))
    assert caught.value.recollection.evidence and not memory.generator.prompts


def test_a_stream_is_the_answer_in_pieces(memory):
    memory.generator = ScriptedGenerator("rivers in Oslo")
    stream = memory.stream("What does Ann paint?")
    assert stream.answer is None and stream.recollection.evidence and not memory.generator.prompts
    assert list(stream) == ["rivers", " in", " Oslo"]
    asked = memory.ask("What does Ann paint?")
    assert stream.answer.text == asked.text and stream.answer.messages == asked.messages
    assert stream.answer.ledger.tokens_answered > 0 and stream.answer.finish_reason is None
    memory.generator = ScriptedGenerator(fails="away")
    with pytest.raises(UnansweredError, match="away"):
        list(memory.stream("What does Ann paint?"))
    refused = memory.stream("x", scope="nobody")
    assert list(refused) == [] and refused.answer.abstained


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.recall(" "), MemoryBankError, "question must be"),
        (lambda m: m.recall(None), MemoryBankError, "question must be"),
        (lambda m: m.recall("x", 0), ConfigError, "budget must be"),
        (lambda m: m.recall("x", True), ConfigError, "budget must be"),
        (lambda m: m.recall("x", scope=[""]), MemoryBankError, "scope"),
        (lambda m: m.recall("x", where={"a": {"in": 3}}), MemoryBankError, "'in' takes a list"),
        (lambda m: m.recall("x", reference_date="soon"), MemoryBankError, "reference_date.*soon"),
        (lambda m: m.remember(["x"], happened_at="32 May 2023"), MemoryBankError, "happened_at: .*no date"),
        (lambda m: m.remember(["x"], session=""), MemoryBankError, "session"),
        (lambda m: m.remember(["x"], metadata=[]), MemoryBankError, "metadata"),
        (lambda m: m.remember("x"), MemoryBankError, "turns must be"),
        (lambda m: m.save(), ConfigError, "no directory"),
    ],
)
def test_bad_calls_are_refused_and_change_nothing(memory, call, error, message):
    with pytest.raises(error, match=message):
        call(memory)
    assert len(memory) == 13


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CoreMem(config={}), "config must be"),
        (lambda: CoreMem(generator=len), "builtin_function_or_method is no generator"),
        (lambda: CoreMem(MemoryBank(), encoder=len), "encoder is for a bank"),
        (lambda: CoreMem().ask("x"), "no generator"),
        (lambda: CoreMemConfig(retrieve=0), "retrieve must be"),
        (lambda: CoreMemConfig(budget=2.5), "budget must be"),
        (lambda: CoreMemConfig(support=True), "support must be"),
        (lambda: CoreMemConfig(support="no"), "support must be"),
        (lambda: CoreMemConfig(support=float("nan")), "support must be"),
        (lambda: CoreMemConfig(prompt="Hi"), "prompt must be"),
        (lambda: CoreMemConfig(sampling=3), "sampling must be"),
        (lambda: CoreMemConfig(memory=3), "memory must be"),
        (lambda: CoreMemConfig(rerank=3), "rerank must have"),
        (lambda: CoreMemConfig(unanswered=3), "unanswered must be"),
    ],
)
def test_bad_settings_are_refused_at_once(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_bank_of_an_older_version_opens_with_the_settings_of_today(tmp_path):
    old = Path(__file__).parent.parent / "memory" / "bank_v1"
    shutil.copytree(old, tmp_path / "bank")
    before = MemoryBank.load(old)
    memory = CoreMem(tmp_path / "bank")
    assert len(memory) == len(before) and memory.bank.config.ranking == "hybrid"
    assert memory.bank.config.dtype == before.config.dtype
    # A bank that is passed in keeps its own settings.
    assert CoreMem(before).bank.config == before.config


def test_it_is_kept_and_opened_again(tmp_path, hashing_encoder):
    with CoreMem(tmp_path / "bank", encoder=hashing_encoder, clock=lambda: NOW) as memory:
        memory.remember(DIALOGUE)
        before = memory.recall("the dog", 30)
    again = CoreMem(tmp_path / "bank", encoder=hashing_encoder, clock=lambda: NOW)
    after = again.recall("the dog", 30)
    assert after.text == before.text and after.evidence == before.evidence
    assert again.remember(DIALOGUE).added == 0
    with pytest.raises(RuntimeError), again:
        again.remember(["lost"])
        raise RuntimeError
    assert len(CoreMem(tmp_path / "bank")) == 13
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(StateError):
        CoreMem(tmp_path / "other")


def test_the_papers_settings(hashing_encoder):
    memory = CoreMem(encoder=hashing_encoder, generator=ScriptedGenerator(), config=CoreMemConfig.paper())
    memory.remember(DIALOGUE)
    assert memory.bank.config == MemoryConfig.paper()
    content = memory.ask("What does Ann paint?").messages[0]["content"]
    assert content.startswith("Based on the following conversation context") and content.endswith("\nAnswer:")


SCRIPTS = {
    "Latin": ("Zoë: Ich wohne in Köln. Mein Hund heißt Bär.", "Wie heißt der Hund"),
    "Cyrillic": ("Анна: Я живу в Москве. Мою собаку зовут Рекс.", "Как зовут собаку"),
    "Greek": ("Άννα: Μένω στην Αθήνα. Έχω σκύλο και τον λένε Άργος.", "Πώς λένε τον σκύλο"),
    "Arabic": ("سارة: أسكن في القاهرة. اسم كلبي ركس.", "ما اسم كلبي"),
    "Hebrew": ("שרה: אני גרה בחיפה. לכלב שלי קוראים רקס.", "איך קוראים לכלב"),
    "Devanagari": ("अनु: मैं दिल्ली में रहती हूँ। मेरे कुत्ते का नाम रेक्स है।", "कुत्ते का नाम क्या है"),
    "Thai": ("นิด: ฉันอยู่ที่กรุงเทพ หมาของฉันชื่อเร็กซ์", "หมาชื่ออะไร"),
    "Han": ("小明: 我住在北京。我的狗叫雷克斯。", "狗叫什么"),
    "Kana": ("はな: わたしは京都にすんでいます。いぬのなまえはレックスです。", "いぬのなまえは"),
    "Hangul": ("지민: 나는 서울에 살아요. 내 개 이름은 렉스예요.", "개 이름은 뭐예요"),
    "Tamil": ("மீனா: நான் சென்னையில் வசிக்கிறேன். என் நாயின் பெயர் ரெக்ஸ்.", "நாயின் பெயர் என்ன"),
    "Emoji": ("🙂: 👩‍👩‍👧‍👦🏳️‍🌈 e\u0301te\u0301 Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "🏳️‍🌈"),
}


def test_memories_in_many_scripts_come_back_as_they_were(hashing_encoder, tmp_path):
    memory = CoreMem(
        tmp_path / "bank", encoder=hashing_encoder, generator=ScriptedGenerator("雷克斯"), clock=lambda: NOW
    )
    memory.remember([text for text, _ in SCRIPTS.values()])
    memory.save()
    memory = CoreMem(tmp_path / "bank", encoder=hashing_encoder, generator=memory.generator, clock=lambda: NOW)
    for text, question in SCRIPTS.values():
        found = memory.recall(question, 10_000)
        assert f"[1 February 2024] {text}" in found.text.split("\n")
        small = memory.recall(question, 25)
        assert memory.distiller.tokenizer.count(small.text) <= 25
        for part in small.evidence:
            assert all(part.text[start:stop] in part.kept for start, stop in part.spans)
    assert memory.ask("狗叫什么").text == "雷克斯"


def test_the_papers_distiller_takes_the_selectors_place(hashing_encoder, tiny):
    """Tokens by the sensitivity of a model; the budget is counted by that model, the spans are still characters."""
    distiller = Distiller(tiny, DistillConfig.paper())
    memory = CoreMem(encoder=hashing_encoder, distiller=distiller, config=CoreMemConfig.paper(), clock=lambda: NOW)
    memory.remember(DIALOGUE)
    found = memory.recall("What is the dog of Bob called", 60)
    assert 0 < tiny.count(found.text) == found.ledger.tokens_kept <= 60 and found.evidence
    for part in found.evidence:
        assert part.spans and all(part.text[start:stop] in part.kept for start, stop in part.spans)


class Longest:
    """A reranker that likes long texts."""

    name = "longest"

    def scores(self, query, texts):
        return np.array([float(len(text)) for text in texts])


def test_a_reranker_orders_what_is_recalled(hashing_encoder):
    memory = CoreMem(encoder=hashing_encoder, config=CoreMemConfig(rerank=Longest(), retrieve=5), clock=lambda: NOW)
    assert memory.recall("anything?").note == "nothing is remembered yet"
    memory.remember(DIALOGUE)
    found = memory.recall("What is the dog called?", 16)
    everything = sorted((*found.evidence, *found.left_out), key=lambda part: part.rank)
    assert [part.score for part in everything] == sorted((len(p.text) for p in everything), reverse=True)
    assert found.note == "ranked by longest" and 0 < len(everything) <= 5
    assert memory.recall("dog?", scope="nobody").evidence == ()
