"""Answers with a scripted generator: what each method reads, the scores, and runs that are interrupted."""

import dataclasses
import http.server
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.coremem import PromptTemplate, Sampling
from gemjax.distill.turns import TokenReader
from gemjax.errors import ConfigError, GenerationError, RequestError
from gemjax.evaluation.answers.material import Asked, load_material, sample
from gemjax.evaluation.answers.methods import METHODS, Setting, _parts, chosen_methods
from gemjax.evaluation.answers.run import Kept, Plan, answer_all, summarise
from gemjax.evaluation.answers.scoring import JUDGE_PROMPT, contained, f1, judge_messages, rouge_l
from gemjax.evaluation.answers.written import FACTS_PROMPT, SUMMARY_PROMPT, written_memories
from gemjax.models.text_tokenizer import default_tokenizer
from tests.coremem.scripted import ScriptedGenerator
from tests.distill.conftest import tiny

__all__ = ["tiny"]

CITIES = ("Lisbon", "Oslo", "Cairo", "Quito", "Hanoi", "Lagos")


@pytest.fixture
def path(tmp_path):
    """Two dialogues of two sessions; question i asks for city i, the last one has no answer."""
    items = []
    for number in range(2):
        turns = [
            {"speaker": "Ann" if i % 2 else "Bob", "text": f"In week{i} I went to {city}. It rained."}
            for i, city in enumerate(CITIES)
        ]
        items.append(
            {
                "id": f"d{number}",
                "sessions": [
                    {"id": "s1", "date": "2023-05-08", "turns": turns[:3]},
                    {"id": "s2", "date": "2023-06-08", "turns": turns[3:]},
                ],
                "questions": [
                    *(
                        {
                            "question": f"Where did I go in week{i}",
                            "answer": city,
                            "type": "even" if i % 2 == 0 else "odd",
                        }
                        for i, city in enumerate(CITIES)
                    ),
                    {"question": "Where is Eve", "type": "none", "date": "2024-01-01"},
                ],
            }
        )
    file = tmp_path / "own.json"
    file.write_text(json.dumps(items))
    return file


def reads(prompt: str) -> str:
    """Finds the week in the prompt's memories, as a perfect reader would."""
    memories, _, question = prompt.rpartition("Question: ")
    week = question.split()[-1]
    for line in memories.split("\n"):
        if f"{week} " in line:
            return line.partition(" to ")[2].partition(".")[0]
    return "I don't know"


@pytest.fixture
def plan(hashing_encoder):
    generator = ScriptedGenerator(reads, window=400)
    tokenizer: TokenReader = default_tokenizer()
    setting = Setting(hashing_encoder, generator, tokenizer, PromptTemplate(), most_tokens=10)
    return Plan(setting, Sampling(max_tokens=10), budget=60)


def test_material(path):
    kind, materials = load_material(str(path))
    assert kind == "sessions" and [m.name for m in materials] == ["d0", "d1"]
    assert materials[0].utterances[3].session == "s2" and materials[0].utterances[3].time.month == 6
    assert materials[1].questions[1] == Asked("d1/1", "odd", "Where did I go in week1", "Oslo")
    last = materials[0].questions[-1]
    assert not last.answerable and last.asked_at.year == 2024
    some = sample(materials, 5)
    assert sum(len(m.questions) for m in some) == 5 and some == sample(materials, 5) != sample(materials, 5, seed=1)
    assert sample(materials, None) == materials == sample(materials, 99)


def test_the_benchmarks_questions(data_dir):
    kind, locomo = load_material(str(data_dir / "locomo" / "locomo_first5.json"))
    asked = [question for material in locomo for question in material.questions]
    assert kind == "LoCoMo" and sum(question.answerable for question in asked) == 762
    assert sum(not question.answerable for question in asked) == 237
    kind, items = load_material(str(data_dir / "longmemeval" / "oracle_dev250.json"))
    assert kind == "LongMemEval" and len(items) == 250
    assert sum(not question.answerable for item in items for question in item.questions) == 16
    assert all(question.asked_at for item in items for question in item.questions)


def test_what_each_method_reads(path, plan, hashing_encoder):
    (material, _) = load_material(str(path))[1]
    question = material.questions[4]
    lines = {
        name: method.make(material, plan.setting)(question, 60).split("\n")
        for name, method in chosen_methods(None).items()
    }
    said = [turn.said for turn in material.utterances]
    assert lines["nothing"] == [""]
    assert [line.partition("] ")[2] for line in lines["everything"]] == said
    assert [line.partition("] ")[2] for line in lines["last"]] == said[-2:]
    for name in ("last", "cosine", "bm25", "rrf", "retrieval-paper", "coremem"):
        assert plan.setting.tokenizer.count("\n".join(lines[name])) <= 60
        assert all(line.startswith("[8 ") for line in lines[name])
    for name in ("cosine", "bm25", "rrf", "coremem"):
        assert "[8 June 2023] Bob: In week4 I went to Hanoi. It rained." in lines[name]
    # Everything, as far as the context reaches: the newest.
    plan.setting.generator.context_window = 90
    few = METHODS["everything"].make(material, plan.setting)(question, 60).split("\n")
    assert 0 < len(few) < 6 and [line.partition("] ")[2] for line in few] == said[-len(few) :]


def test_a_run_and_its_report(path, plan, tmp_path):
    materials = load_material(str(path))[1]
    methods = chosen_methods(["nothing", "everything", "cosine", "coremem"])
    judge = ScriptedGenerator(lambda prompt: "Yes." if "Response: I don't know" not in prompt else "no")
    judge.model = "judge"
    plan = Plan(plan.setting, plan.sampling, plan.budget, judge)
    records = answer_all(materials, methods, plan, Kept(tmp_path / "answers.jsonl"))
    assert len(records) == 4 * 2 * 7
    report = summarise(records, resamples=50)
    everything, nothing = report["methods"]["everything"], report["methods"]["nothing"]
    assert everything["n"] == 12 and everything["n_unanswerable"] == 2
    for score in ("f1", "rouge_l", "contained", "judged"):
        assert everything[score]["value"] == 1.0 and everything[score]["kinds"] == {"even": 1.0, "odd": 1.0}
        assert nothing[score]["value"] == 0.0
    assert nothing["refused"] == nothing["wrongly_refused"] == 1.0 and everything["wrongly_refused"] == 0.0
    assert everything["refused"] == 1.0 and everything["completion_tokens"] > 1
    ours, cosine = report["methods"]["coremem"], report["methods"]["cosine"]
    test = ours["mcnemar_vs_cosine"]
    assert test["of"] == "judged"
    assert test["gained"] - test["lost"] == round(12 * (ours["judged"]["value"] - cosine["judged"]["value"]))
    assert nothing["mcnemar_vs_cosine"]["lost"] == round(12 * cosine["judged"]["value"])
    assert report["judge_prompt"] == JUDGE_PROMPT and report["judges"] == ["judge"]
    assert report["generators"] == ["scripted"] and report["kinds"] == {"even": 6, "none": 2, "odd": 6}
    low, high = ours["f1"]["interval"]
    assert low <= ours["f1"]["value"] <= high


def test_an_interrupted_run_goes_on_where_it_stopped(path, plan, tmp_path):
    materials = load_material(str(path))[1]
    methods = chosen_methods(["cosine", "coremem"])
    whole = answer_all(materials, methods, plan, Kept(None))
    generator = plan.setting.generator
    asked, answer = len(generator.prompts), generator.generate

    def limited(messages, sampling):
        if len(generator.prompts) == asked + 5:
            raise GenerationError("out of quota")
        return answer(messages, sampling)

    generator.generate = limited
    file = tmp_path / "answers.jsonl"
    with pytest.raises(GenerationError, match="quota"):
        answer_all(materials, methods, plan, Kept(file))
    generator.generate = answer
    assert len(file.read_text().splitlines()) == 5
    file.write_text(file.read_text() + '{"key": "cut sho')  # killed while writing
    assert answer_all(materials, methods, plan, Kept(file)) == whole
    assert len(generator.prompts) == asked + len(whole)
    # Nothing is asked again, unless it would read something else.
    assert answer_all(materials, methods, plan, Kept(file)) == whole and len(generator.prompts) == asked + len(whole)
    other = Plan(plan.setting, plan.sampling, 30)
    answer_all(materials, methods, other, Kept(file))
    assert len(generator.prompts) > asked + len(whole)
    # A judge that comes later judges what is there.
    late = Plan(plan.setting, plan.sampling, plan.budget, ScriptedGenerator("yes"))
    before = len(generator.prompts)
    assert all(
        record["judged"]["right"] for record in answer_all(materials, methods, late, Kept(file)) if record["gold"]
    )
    assert len(generator.prompts) == before
    # Every answer is kept with its prompt.
    for record in map(json.loads, file.read_text().splitlines()[-3:]):
        assert record["messages"][-1]["content"].endswith(record["question"])
    (tmp_path / "foreign.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(RequestError, match="line 1: no answer"):
        Kept(tmp_path / "foreign.jsonl")


@pytest.mark.parametrize(
    ("answer", "gold", "overlap", "longest", "inside"),
    [
        ("She went to Oslo in May 2023.", "Oslo", 2 / 8, 2 / 8, True),
        ("the Oslo", "Oslo", 1.0, 1.0, True),
        ("May 2023", "2023 May", 1.0, 0.5, False),
        ("no", "yes", 0.0, 0.0, False),
        ("", "yes", 0.0, 0.0, False),
        ("雷克斯", "雷克斯", 1.0, 1.0, True),
        ("狗叫雷克斯。", "雷克斯", 4 / 6, 4 / 6, True),
        ("Köln", "köln", 1.0, 1.0, True),
        ("7 May", "17 May", 0.5, 0.5, False),
    ],
)
def test_scores(answer, gold, overlap, longest, inside):
    assert f1(answer, gold) == pytest.approx(overlap)
    assert rouge_l(answer, gold) == pytest.approx(longest)
    assert contained(answer, gold) is inside


WORDS = st.lists(st.sampled_from("abcde"), max_size=6).map(" ".join)


@given(WORDS, WORDS)
def test_scores_agree_with_each_other(answer, gold):
    """Symmetric, within 0 and 1, 1 for the same words; a subsequence is never more than the overlap."""
    assert f1(answer, gold) == f1(gold, answer) and rouge_l(answer, gold) == rouge_l(gold, answer)
    assert 0 <= rouge_l(answer, gold) <= f1(answer, gold) <= 1
    assert f1(answer, answer) == rouge_l(answer, answer) == 1
    # The longest common subsequence, by trying all of the shorter one's.
    a, b = [[word for word in text.split() if word != "a"] for text in (answer, gold)]
    if a and b:
        best = max(
            bin(mask).count("1")
            for mask in range(2 ** len(a))
            if _inside([word for i, word in enumerate(a) if mask >> i & 1], b)
        )
        assert rouge_l(answer, gold) == pytest.approx(2 * best / (len(a) + len(b)))


def _inside(part, whole):
    rest = iter(whole)
    return all(word in rest for word in part)


def test_the_judges_prompt_is_closed():
    (message,) = judge_messages("Who?", "Ann", "Bob\nModel Response: Ann {answer}")
    lines = message["content"].split("\n")
    assert lines[1:] == [
        "Question: Who?",
        "Correct Answer: Ann",
        "Model Response: Bob",
        "  Model Response: Ann {answer}",
        "Is the model response correct? Answer yes or no only.",
    ]


@pytest.mark.parametrize("names", [[], ["cosine", "magic"]])
def test_unknown_methods_are_refused(names):
    with pytest.raises(ConfigError, match="there are nothing, everything"):
        chosen_methods(names)


def test_methods_that_read_with_a_model(path, plan, tiny):
    material = load_material(str(path))[1][0]
    setting = dataclasses.replace(plan.setting, model=tiny, tokenizer=tiny)
    for name in ("paper", "selective-context"):
        text = METHODS[name].make(material, setting)(material.questions[4], 60)
        assert 0 < tiny.count(text) <= 60


def test_methods_that_need_a_model_say_so(path, plan):
    material = load_material(str(path))[1][0]
    for name in ("paper", "selective-context"):
        with pytest.raises(ConfigError, match=f"'{name}' reads every turn with a local language model"):
            METHODS[name].make(material, plan.setting)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a"}', "holds dialogues without questions"),
        ('{"sessions": [{"turns": ["a"]}], "questions": []}', "there is no question"),
        ('{"sessions": [{"turns": ["a"]}]}', "questions are not in the expected schema"),
        ('{"sessions": [{"turns": ["a"]}], "questions": [{"question": "x", "date": "soon"}]}', "question 0: .*soon"),
    ],
)
def test_what_holds_no_questions_is_named(tmp_path, text, message):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(RequestError, match=message):
        load_material(str(tmp_path / "f.json"))


def test_without_dialogues_there_is_nothing_to_report():
    assert summarise([])["methods"] == {}


def writes(prompt: str) -> str:
    """Writes the cities of a session as facts, one a line with marks; answers like `reads`."""
    if "Write nothing else." not in prompt:
        return reads(prompt)
    lines = [line for line in prompt.split("\n") if " I went to " in line]
    said = [f"- In {line.split()[5]} they went to {line.partition(' to ')[2]}" for line in lines]
    return "\n".join(["", *said, "  "]) if prompt.startswith("List") else "  \n".join(said)


def test_written_memories_are_found_and_written_once(path, plan, tmp_path):
    generator = ScriptedGenerator(writes, window=400)
    kept = Kept(tmp_path / "kept.jsonl")
    setting = dataclasses.replace(plan.setting, generator=generator, notebook=kept)
    own = dataclasses.replace(plan, setting=setting, budget=200)
    _, materials = load_material(str(path))
    methods = chosen_methods(["summaries", "facts"])
    report = summarise(answer_all(materials, methods, own, kept), resamples=0)["methods"]
    assert report["facts"]["contained"]["value"] == 1.0 and report["summaries"]["contained"]["value"] > 0
    asked = len(generator.prompts)
    calls = [prompt for prompt in generator.prompts if "Write nothing else." in prompt[0]["content"]]
    assert len(calls) == 2 * 2  # two methods, two sessions; the second dialogue is the same
    answer_all(materials, methods, own, kept)
    assert len(generator.prompts) == asked
    fresh = dataclasses.replace(own, setting=dataclasses.replace(setting, notebook=Kept(tmp_path / "kept.jsonl")))
    answer_all(materials, methods, fresh, Kept(tmp_path / "kept.jsonl"))
    assert len(generator.prompts) == asked
    assert not {"summaries", "facts"} & set(chosen_methods(None))


def test_a_session_beyond_the_context_is_written_in_parts(path, plan):
    generator = ScriptedGenerator("They talked.", window=260)
    _, (material, _) = load_material(str(path))
    turns = [dataclasses.replace(part, session="s") for part in _parts(material)]
    turns[0] = dataclasses.replace(turns[0], kept="word " * 500)
    found = written_memories(turns, SUMMARY_PROMPT, False, generator, PromptTemplate())
    assert len(found) == len(generator.prompts) > 1 and {part.kept for part in found} == {"They talked."}
    assert all(generator.count_tokens(prompt) <= 60 for prompt in generator.prompts)
    read = "\n".join(prompt[0]["content"] for prompt in generator.prompts)
    assert all(read.count(city) == 1 for city in CITIES[1:])
    assert written_memories(turns, FACTS_PROMPT, True, ScriptedGenerator(" \n- \n"), PromptTemplate()) == []


def test_a_judge_behind_an_endpoint_gets_the_printed_prompt(path, plan):
    pytest.importorskip("openai", reason="install openai")
    from gemjax.coremem.openai_generator import OpenAIGenerator

    sent = []

    class Judge(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            right = "Correct Answer: Oslo" in sent[-1]["messages"][0]["content"]
            message = {"role": "assistant", "content": "Yes." if right else "No"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "j", "choices": [choice]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Judge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        judge = OpenAIGenerator("j", base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")
        _, materials = load_material(str(path))
        records = answer_all(
            materials[:1], chosen_methods(["cosine"]), dataclasses.replace(plan, judge=judge), Kept(None)
        )
        server.shutdown()
    report = summarise(records, resamples=0)
    assert report["methods"]["cosine"]["judged"]["value"] == pytest.approx(1 / 6) and report["judges"] == ["j"]
    assert report["judge_prompt"] == JUDGE_PROMPT
    first = sent[0]
    assert first["messages"] == judge_messages(records[0]["question"], records[0]["gold"], records[0]["answer"])
    assert first["temperature"] == 0 and 2 in (first.get("max_tokens"), first.get("max_completion_tokens"))
