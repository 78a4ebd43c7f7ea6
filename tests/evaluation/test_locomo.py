"""The reader, the measures against hand-counted values, and the report's shape."""

import json
import math

import numpy as np
import pytest

from gemjax.errors import ConfigError, RequestError
from gemjax.evaluation import locomo
from gemjax.evaluation.rankings import METHODS, Corpus
from gemjax.evaluation.tuning import cross_validate
from gemjax.memory import MemoryConfig


def test_turns_and_evidence_are_read_as_designed(tiny_path):
    conversation = locomo.load_locomo(tiny_path)[0]
    assert conversation.turn_ids[:6] == ("D1:1", "D1:2", "D1:3", "D1:4", "D1:5", "D10:1")  # by number, not by name
    assert conversation.texts[0] == "Ann: apple talk 0"
    assert conversation.texts[5] == "Ann: forest talk 0 [a photo of a pine]"
    assert [q.gold for q in conversation.questions] == [(0,), (1, 2), (5,), (6,), (), (), (8,)]
    assert [q.answered for q in conversation.questions] == [True] * 6 + [False]


def test_measures_by_hand(tiny_path):
    conversation = locomo.load_locomo(tiny_path)[0]
    everyone = np.tile(np.arange(10), (7, 1))
    ranking = np.concatenate([everyone, np.zeros((7, 40), int)], axis=1)  # turn i is found at place i + 1
    column = {name: i for i, name in enumerate(locomo.MEASURES)}
    cleaned = locomo.outcomes(conversation, ranking)
    assert np.isnan(cleaned[4:6]).all()
    np.testing.assert_array_equal(cleaned[[0, 1, 2, 3, 6], column["hit@1"]], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(cleaned[[0, 1, 2, 3, 6], column["hit@5"]], [1, 1, 0, 0, 0])
    np.testing.assert_array_equal(cleaned[[0, 1, 2, 3, 6], column["all@10"]], [1, 1, 1, 1, 1])
    ranking[1] = [1] + [9] * 49
    assert locomo.outcomes(conversation, ranking)[1, column["recall@5"]] == 0.5
    assert locomo.outcomes(conversation, ranking)[1, column["all@5"]] == 0
    literal = locomo.outcomes(conversation, np.concatenate([everyone, np.zeros((7, 40), int)], axis=1), literal=True)
    # "D1:2; D1:3", "D10:01", "D:10:2" equal no turn's id; no evidence counts as found.
    np.testing.assert_array_equal(literal[:, column["hit@10"]], [1, 0, 0, 0, 1, 0, 1])


def test_the_report(tiny_path, hashing_encoder):
    conversations = locomo.load_locomo(tiny_path)
    corpora = locomo.encode(conversations, hashing_encoder)
    report = locomo.evaluate(conversations, corpora, ["cosine", "fused", "csls", "centred_cosine"], resamples=50)
    json.dumps(report)
    assert report["data"]["evidence"] == {
        "entries": 14, "malformed": 8, "pointing_nowhere": 2, "questions_without": 2,
    }  # fmt: skip
    cosine = report["methods"]["cosine"]["hit@10"]
    assert cosine["cleaned"]["n"] == 8 and cosine["literal"]["n"] == 12
    assert cosine["cleaned"]["micro"] == 1.0  # ten turns, top ten
    assert cosine["cleaned"]["categories"]["5"] == {"name": "adversarial", "value": 1.0, "n": 2}
    assert cosine["cleaned"]["categories"]["3"]["n"] == 0 and math.isnan(cosine["cleaned"]["categories"]["3"]["value"])
    assert "mcnemar_vs_cosine" not in report["methods"]["cosine"]
    assert report["methods"]["fused"]["mcnemar_vs_cosine"]["p"] == 1.0
    first = report["methods"]["cosine"]["hit@1"]["cleaned"]
    assert first["interval_questions"][0] <= first["micro"] <= first["interval_questions"][1]


def test_cross_validation_scores_conversations_that_took_no_part(tiny_path, hashing_encoder):
    conversations = locomo.load_locomo(tiny_path)
    corpora = locomo.encode(conversations, hashing_encoder)
    grid = [MemoryConfig(alpha=1.0), MemoryConfig()]
    report = cross_validate(conversations, corpora, grid)
    assert report["n"] == 8 and len(report["folds"]) == 2 and len(report["grid"]) == 2
    assert report["held_out"]["hit@10"] == 1.0
    with pytest.raises(ConfigError, match="at least two conversations"):
        cross_validate(conversations[:1], corpora[:1], grid)


def test_bad_files_and_names(tmp_path, tiny_path, hashing_encoder):
    for text, message in (("{", "cannot read"), ("[]", "non-empty list"), ('[{"qa": []}]', "conversation 0")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(RequestError, match=message):
            locomo.load_locomo(tmp_path / "bad.json")
    with pytest.raises(RequestError, match="cannot read"):
        locomo.load_locomo(tmp_path / "absent.json")
    conversations = locomo.load_locomo(tiny_path)
    with pytest.raises(ConfigError, match="unknown methods 'fast'"):
        locomo.evaluate(conversations, locomo.encode(conversations, hashing_encoder), ["cosine", "fast"])


def changed(tiny_path, change):
    """Writes the made-up data with one thing changed in its second conversation."""
    data = json.loads(tiny_path.read_text())
    change(data[1])
    tiny_path.write_text(json.dumps(data))
    return tiny_path


def put(value, *keys):
    def change(sample):
        for key in keys[:-1]:
            sample = sample[key]
        sample[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(None, "conversation", "session_1", 2, "text"), "session_1, turn 2: 'text' must be a string, got None"),
        (put(7, "conversation", "session_1", 2, "speaker"), "session_1, turn 2: 'speaker' must be a string, got 7"),
        (put([1], "conversation", "session_1", 2, "blip_caption"), r"'blip_caption' must be a string, got \[1\]"),
        (put("D", "conversation", "session_1", 2, "dia_id"), "turn 2: 'dia_id' must name session and turn, .* got 'D'"),
        (put("hello", "conversation", "session_1", 2), "session_1, turn 2: expected an object, got 'hello'"),
        (put({}, "conversation", "session_1", 2), "session_1, turn 2: has no 'speaker'"),
        (put("hello", "conversation", "session_1"), "'session_1' must be a list of turns, got 'hello'"),
        (put({"session_1": []}, "conversation"), "it has no turns"),
        (put({}, "conversation"), "it has no turns"),
        (put([], "conversation"), "'conversation' must be an object"),
        (put({}, "qa"), "'qa' must be a list of questions"),
        (put("hello", "qa", 3), "question 3: expected an object"),
        (put(None, "qa", 3, "question"), "question 3: 'question' must be a string, got None"),
        (put(99, "qa", 3, "category"), "question 3: 'category' must be a number from 1 to 5, got 99"),
        (put(True, "qa", 3, "category"), "question 3: 'category' must be a number from 1 to 5, got True"),
        (put("4", "qa", 3, "category"), "question 3: 'category' must be a number from 1 to 5, got '4'"),
        (put([1], "qa", 3, "evidence"), r"question 3: 'evidence' must be a list of strings, got \[1\]"),
        (put(["x" * 99], "qa", 3, "answer"), r"question 3: 'answer' must be a string or a number, got \['x+\.\.\."),
    ],
)
def test_what_is_not_in_the_schema_is_refused_with_its_place(tiny_path, change, message):
    with pytest.raises(RequestError, match=f"tiny.json: conversation 1 is not in LoCoMo's schema \\(.*{message}"):
        locomo.load_locomo(changed(tiny_path, change))


def test_no_answer_and_evidence_in_one_string(tiny_path):
    def change(sample):
        sample["qa"][0]["answer"] = None
        sample["qa"][1]["evidence"] = "D1:2; D1:3"
        sample["qa"][2]["evidence"] = None

    first, second, third = locomo.load_locomo(changed(tiny_path, change))[1].questions[:3]
    assert not first.answered and first.answer == ""
    assert second.literal == ("D1:2; D1:3",) and second.gold == (1, 2)
    assert third.literal == () and third.gold == ()


def test_a_deeply_nested_file(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(RequestError, match="nested too deeply"):
        locomo.load_locomo(tmp_path / "deep.json")


def test_bm25_finds_words():
    pytest.importorskip("bm25s", reason="install bm25s")
    texts = ["a red boat", "a green castle", "the forest"]
    corpus = Corpus(texts, ["which castle", "zzz"], np.zeros((3, 4)), np.zeros((2, 4)))
    ranking = METHODS["bm25"][1](corpus, 2)
    assert ranking[0, 0] == 1
    np.testing.assert_array_equal(ranking[1], [0, 1])  # no known word: ties in order


@pytest.mark.data
@pytest.mark.weights
def test_the_papers_ordering_on_real_conversations(real_locomo):
    """The fused score above the cosine, by more than chance over the questions, and the tuned preset above both."""
    report = locomo.evaluate(*real_locomo, ["cosine", "fused", "tuned"], resamples=0)
    value = {name: entry["hit@10"]["cleaned"]["micro"] for name, entry in report["methods"].items()}
    assert value["tuned"] > value["fused"] > value["cosine"]
    assert report["methods"]["fused"]["mcnemar_vs_cosine"]["p"] < 0.05


@pytest.mark.data
@pytest.mark.weights
def test_the_printed_shortcut_of_algorithm_1_is_not_the_inverse(real_locomo):
    """Line 11 prints P = D^-1 U M^-1 where Woodbury needs the capacitance's root: retrieval falls to almost nothing."""
    conversations, corpora = real_locomo
    hits = []
    for conversation, corpus in zip(conversations, corpora, strict=True):
        h, q = corpus.memories.astype(np.float64), corpus.queries.astype(np.float64)
        mean = h.mean(0)
        variance = h.var(0)
        lam = 10 * variance.mean()
        _, s, vt = np.linalg.svd(h - mean, full_matrices=False)
        r = int(np.argmax(np.cumsum(s**2) / np.sum(s**2) >= 0.95)) + 1
        p = vt[:r].T / (variance + lam)[:, None] / (s[:r] ** 2 / len(h) + lam)
        score = (q - mean) / (variance + lam) @ (h - mean).T - ((q - mean) @ p) @ ((h - mean) @ p).T
        top = np.argsort(-score, axis=1, kind="stable")[:, :50]
        column = locomo.outcomes(conversation, top)[:, locomo.MEASURES.index("hit@10")]
        hits += [v for v, question in zip(column, conversation.questions, strict=True) if question.answered and v == v]
    assert np.mean(hits) < 0.02


@pytest.mark.data
@pytest.mark.weights
@pytest.mark.parametrize("kind", ["lancedb", "pgvector"])
def test_stores_give_the_same_ten_on_real_data(kind, real_locomo, tmp_path, request):
    from gemjax.memory import MemoryBank
    from gemjax.memory.stores import LanceStore, PgVectorStore

    conversation, corpus = real_locomo[0][1], real_locomo[1][1]
    bank = MemoryBank()
    bank.add(corpus.texts, ids=list(conversation.turn_ids), vectors=corpus.memories)
    if kind == "lancedb":
        pytest.importorskip("lancedb", reason="install lancedb")
        store = LanceStore(str(tmp_path))
    else:
        store = PgVectorStore(request.getfixturevalue("postgres_url"), "real")
    assert store.write(bank) == 369
    for query in corpus.queries[:12]:
        for metric in ("fused", "riemannian"):
            want = bank.search(query, k=10, metric=metric)
            got = store.search(bank.query_vector(query, metric=metric), k=10)
            assert [h.id for h in got] == [h.id for h in want] or np.allclose(
                [h.score for h in got], [h.score for h in want], atol=1e-5
            )
