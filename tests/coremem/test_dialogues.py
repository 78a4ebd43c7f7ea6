"""Files of dialogues: what is read from each format, and what is said of a file that is none."""

import datetime as dt
import gzip
import json

import pytest

from gemjax.coremem.dialogues import Dialogue, read_dialogues
from gemjax.coremem.utterances import Utterance
from gemjax.errors import RequestError

MAY = dt.datetime(2023, 5, 8, 13, 56, tzinfo=dt.UTC)
TURNS = [{"speaker": "Ann", "text": "I paint.", "time": "2023-05-08T13:56"}, {"role": "user", "content": "Hi"}]
READ = (Utterance("I paint.", "Ann", MAY), Utterance("Hi", "user"))


@pytest.mark.parametrize(
    "data",
    [
        "\n".join(map(json.dumps, TURNS)) + "\n\n",
        json.dumps(TURNS),
        json.dumps({"messages": TURNS}, indent=1),
        "\ufeff" + json.dumps(TURNS),
    ],
)
def test_turns_and_messages(data):
    assert read_dialogues(data.encode(), "a") == ("turns", [Dialogue("", READ)])
    assert read_dialogues(gzip.compress(data.encode()), "a") == ("turns", [Dialogue("", READ)])


def test_a_single_line():
    assert read_dialogues(b'{"text": "alone"}', "a") == ("turns", [Dialogue("", (Utterance("alone"),))])


def test_locomo():
    sample = {
        "sample_id": "c1",
        "conversation": {
            "speaker_a": "Ann",
            "session_10_date_time": "12:05 am on 1 June, 2023",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "Late."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "Look", "blip_caption": "a dog"}],
            "session_3_date_time": "9:00 am on 9 May, 2023",
        },
        "qa": [],
    }
    kind, (dialogue,) = read_dialogues(json.dumps([sample]).encode(), "a")
    june = dt.datetime(2023, 6, 1, 0, 5, tzinfo=dt.UTC)
    assert kind == "LoCoMo" and dialogue.name == "c1"
    assert dialogue.utterances == (
        Utterance("Look [a dog]", "Bob", MAY, "session_2", "D2:1"),
        Utterance("Late.", "Ann", june, "session_10", "D10:1"),
    )


def test_longmemeval_reads_no_label():
    item = {
        "question_id": "q1_abs",
        "haystack_dates": ["2023/05/08 (Mon) 13:56"],
        "haystack_session_ids": ["answer_1"],
        "haystack_sessions": [
            [{"role": "user", "content": "Hi", "has_answer": True}, {"role": "assistant", "content": "Hello"}]
        ],
    }
    kind, (dialogue,) = read_dialogues(json.dumps([item]).encode(), "a")
    assert kind == "LongMemEval" and dialogue.name == "q1_abs"
    assert dialogue.utterances == (
        Utterance("Hi", "user", MAY, "session_0"),
        Utterance("Hello", "assistant", MAY, "session_0"),
    )


def test_memorybank():
    users = {
        " Emily ": {
            "history": {"2023-04-27": [{"query": "I paint.", "response": "Nice."}]},
            "meta_information": {"x": 1},
        },
        "张曼婷": {"history": {}},
    }
    kind, dialogues = read_dialogues(json.dumps(users).encode(), "a")
    day = dt.datetime(2023, 4, 27, tzinfo=dt.UTC)
    assert kind == "MemoryBank" and [dialogue.name for dialogue in dialogues] == ["Emily", "张曼婷"]
    assert dialogues[0].utterances == (
        Utterance("I paint.", "Emily", day, "2023-04-27"),
        Utterance("Nice.", "assistant", day, "2023-04-27"),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "f is empty"),
        (b" \n ", "f is empty"),
        (b"\xff\xfe", "f is not UTF-8"),
        (b"hello", "f is not JSON"),
        (b'{"text": "a"}\n{"text": \n', "f, line 2 is not JSON"),
        (b'{"text": "a"}\n3\n', "f: turn 1 must be a string, a pair"),
        (b'{"text": "a", "time": "soon"}', "f: turn 0: .*soon"),
        (b'{"text": " "}', "f holds no turn with a text"),
        (b"[]", "f holds no turn with a text"),
        (b"3", "f: turn 0 must be"),
        (b'{"qa": []}', "f: expected turns"),
        (b'[{"conversation": {"session_1": 3}}]', "f: turns must be a sequence"),
        (b'[{"conversation": {"session_1": [], "session_1_date_time": "x"}}]', "f: conversation 0, session_1: .*'x'"),
        (b'[{"haystack_sessions": []}]', "f: not in the expected schema"),
        (b'{"Ann": {"history": {"2023-04-27": [{"query": "x"}]}}}', "f: not in the expected schema.*response"),
        (b'{"Ann": {"history": {"one day": [{"query": "x", "response": "y"}]}}}', "f: Ann, one day: "),
        (b"[" * 100_000, "f is nested too deeply"),
        (gzip.compress(b'{"text": "a"}')[:-9], "f: cannot be unpacked"),
    ],
)
def test_what_is_no_dialogue_is_named(data, message):
    with pytest.raises(RequestError, match=message):
        read_dialogues(data, "f")


def test_the_benchmarks_themselves(data_dir):
    """Counts as in the data's own descriptions."""
    kind, locomo = read_dialogues((data_dir / "locomo" / "locomo_first5.json").read_bytes(), "l")
    assert kind == "LoCoMo" and len(locomo) == 5
    assert all(turn.time and turn.speaker for dialogue in locomo for turn in dialogue.utterances)
    for language, script in (("en", str.isascii), ("cn", lambda text: not text.isascii())):
        file = data_dir / "memorybank" / language / f"memory_bank_{language}.json"
        kind, people = read_dialogues(file.read_bytes(), "m")
        assert kind == "MemoryBank" and len(people) == 15 and any(script(p.name) for p in people)
        assert sum(len(p.utterances) for p in people) == 2 * 566
        assert sum(len({turn.session for turn in p.utterances}) for p in people) == (149 if language == "en" else 150)
