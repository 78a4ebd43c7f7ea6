"""Haystacks of three formats, and the measures against values worked out by hand."""

import gzip
import json
import math

import numpy as np
import pytest

from gemjax.errors import ConfigError, RequestError
from gemjax.evaluation.memory.haystacks import load_haystacks
from gemjax.evaluation.memory.retrieval import MEASURES, encode, evaluate, measures, sessions_of

OWN = [
    {
        "sessions": [
            {"turns": [{"id": "a", "text": "Ann: I like tea"}, {"id": "b", "text": "Bob: rum for me"}]},
            {"turns": [{"id": "c", "text": "Ann: the boat sails at nine"}, {"id": "d", "text": "Bob: good"}]},
        ],
        "questions": [
            {"question": "when does the boat sail", "evidence": ["c"]},
            {"question": "who likes tea and rum", "evidence": ["a", "b"]},
            {"question": "nothing", "evidence": []},
        ],
    }
]


class Words:
    name, dim = "words", 32

    def encode(self, texts):
        import zlib

        out = np.full((len(texts), 32), 1e-3, np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in text.lower().split():
                row[zlib.crc32(word.encode()) % 32] += 1
        return out / np.linalg.norm(out, axis=1, keepdims=True)


def test_measures_by_hand():
    row = dict(zip(MEASURES, measures([7, 3, 9, 1, 4], frozenset({3, 4, 8})), strict=True))
    assert (row["recall_any@1"], row["recall_any@3"], row["recall_all@5"], row["mrr"]) == (0, 1, 0, 0.5)
    # Places 2 and 5 are right; no discount at place 2. The best possible: places 1, 2, 3.
    assert row["ndcg@5"] == pytest.approx((1 + 1 / math.log2(5)) / (1 + 1 + 1 / math.log2(3)))
    assert measures([3, 4], frozenset({3, 4}))[-1] == 1 and measures([1], frozenset({2}))[-1] == 0
    assert sessions_of([2, 0, 3, 1], ["x", "x", "y", "y"]) == ["y", "x"]


def test_ones_own_json_is_ranked_by_turn_and_by_session(tmp_path):
    pytest.importorskip("bm25s", reason="install bm25s")
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    kind, haystacks = load_haystacks(tmp_path / "own.json")
    assert kind == "own" and len(haystacks[0].probes) == 2
    report = evaluate(haystacks, encode(haystacks, Words()), resamples=50)
    assert report["questions"] == 2 and report["sessions"] == 2
    for entry in report["methods"].values():
        assert entry["session"]["recall_all@3"]["value"] == 1 and entry["turn"]["recall_any@5"]["value"] == 1
    assert report["methods"]["bm25"]["turn"]["recall_any@1"]["value"] == 1
    with pytest.raises(ConfigError, match="unknown methods 'x'"):
        evaluate(haystacks, encode(haystacks, Words()), ["x"])


def test_longmemeval_takes_user_turns_and_leaves_out_what_its_protocol_does(tmp_path):
    def item(id, user, assistant):
        turns = [{"role": "user", "content": "u", "has_answer": user}, {"role": "user", "content": " "},
                 {"role": "assistant", "content": "a", "has_answer": assistant}]  # fmt: skip
        return {"question_id": id, "question_type": "t", "question": "q", "haystack_sessions": [[turns[2]], turns],
                "haystack_session_ids": ["x", "answer_1"]}  # fmt: skip

    data = [item("one", True, False), item("two", False, True), item("three_abs", True, False)]
    (tmp_path / "s.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    kind, haystacks = load_haystacks(tmp_path / "s.json.gz")
    assert kind == "LongMemEval" and [h.id for h in haystacks] == ["one"]
    assert haystacks[0].texts == ("u",) and haystacks[0].sessions == ("1",)


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b"[1]", b"{}", b'[{"sessions": 5, "questions": []}]', b'[{"sessions": [], "questions": []}]',
     b'[{"haystack_sessions": [[{"role": 1}]]}]', b'[{"conversation": 1}]',
     b'[{"sessions": [], "questions": [{"question": "q", "evidence": ["x"]}]}]'],
)  # fmt: skip
def test_files_that_are_none_of_these_are_refused(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(RequestError):
        load_haystacks(tmp_path / "x.json")
    (tmp_path / "x.json.gz").write_bytes(content)
    with pytest.raises(RequestError):
        load_haystacks(tmp_path / "x.json.gz")
