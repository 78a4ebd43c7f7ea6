"""The cache in front of an encoder: each text once, bounded, thread-safe, and sound whatever the encoder does."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.errors import ConfigError, EncoderError
from tests.conftest import HashingEncoder


class Recording:
    """Remembers what it was asked; its vectors say which text they are of."""

    name, dim = "recording", 3

    def __init__(self, answer: Callable[[list[str]], Any] | None = None) -> None:
        self.asked: list[list[str]] = []
        self.tokens = 0
        self.answer = answer

    def encode(self, texts: list[str]) -> Any:
        self.asked.append(list(texts))
        self.tokens += sum(map(len, texts))
        return self.answer(texts) if self.answer else np.array([vector(text) for text in texts])


def vector(text: str) -> np.ndarray:
    raw = np.array([1.0, len(text), sum(map(ord, text)) % 97])
    return (raw / np.linalg.norm(raw)).astype(np.float32)


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=8), st.integers(1, 5))
def test_answers_are_right_and_the_cache_is_the_last_used_texts(calls: list[list[str]], room: int) -> None:
    inner = Recording()
    cached = CachedEncoder(inner, room)
    used: list[str] = []  # the model: most recently used last
    asked: list[list[str]] = []
    for texts in calls:
        np.testing.assert_array_equal(cached.encode(texts), np.array([vector(t) for t in texts]).reshape(-1, 3))
        distinct = list(dict.fromkeys(texts))
        hits, misses = [t for t in distinct if t in used], [t for t in distinct if t not in used]
        asked += [misses] if misses else []
        used = ([t for t in used if t not in hits] + hits + misses)[-room:]
        assert inner.asked == asked and len(cached) == len(used)
    assert cached.usage.texts == sum(map(len, calls)) == cached.usage.hits + cached.usage.misses
    assert cached.usage.misses == sum(map(len, asked))
    assert cached.usage.tokens == (sum(map(len, asked)) if asked else None)
    assert cached.usage.seconds >= 0


def test_an_encoder_that_does_not_count_tokens_has_none(hashing_encoder: HashingEncoder) -> None:
    cached = CachedEncoder(hashing_encoder)
    cached.encode(["a b", "c", "c"])
    assert cached.usage.tokens is None and (cached.usage.hits, cached.usage.misses) == (1, 2)
    assert (cached.name, cached.dim) == ("hashing-64", 64)
    assert cached.encode([]).shape == (0, 64)


def test_surrogates_are_texts_like_any_other() -> None:
    cached = CachedEncoder(Recording())
    cached.encode(["\ud800", "\ud801", "\ufffd", "\ud800"])
    assert cached.usage.misses == 3


def test_rows_are_brought_to_unit_length_and_zero_stays() -> None:
    cached = CachedEncoder(Recording(lambda texts: [[0, 0, 0] if t == "zero" else [0, 3, 4] for t in texts]))
    np.testing.assert_allclose(cached.encode(["zero", "x", "zero"]), [[0, 0, 0], [0, 0.6, 0.8], [0, 0, 0]])


def test_a_caller_cannot_change_what_is_kept() -> None:
    cached = CachedEncoder(Recording())
    cached.encode(["a"])[:] = 7
    np.testing.assert_array_equal(cached.encode(["a"])[0], vector("a"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda texts: None, "returned"),
        (lambda texts: np.ones((len(texts) + 1, 3)), r"shape \[3, 3\] for 2 texts"),
        (lambda texts: np.ones((len(texts) - 1, 3)), r"shape \[1, 3\] for 2 texts"),
        (lambda texts: np.ones(3), r"shape \[3\]"),
        (lambda texts: np.full((len(texts), 3), np.nan), "not finite"),
        (lambda texts: [["x"] * 3] * len(texts), "real numbers"),
        (lambda texts: 1 / 0, "raised ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_bad_answer_is_an_encoder_error_and_is_not_kept(answer: Any, message: str, timeout: float | None) -> None:
    inner = Recording(answer)
    cached = CachedEncoder(inner, timeout=timeout)
    with pytest.raises(EncoderError, match=f"encoder 'recording' .*{message}"):
        cached.encode(["a", "b"])
    assert len(cached) == 0
    inner.answer = None
    assert cached.encode(["a", "b"]).shape == (2, 3)


def test_another_length_than_before_is_refused() -> None:
    inner = Recording()
    cached = CachedEncoder(inner)
    cached.encode(["a"])
    inner.answer = lambda texts: np.ones((len(texts), 4))
    with pytest.raises(EncoderError, match=r"shape \[1, 4\] for 1 texts; expected \[1, 3\]"):
        cached.encode(["b"])


def test_what_was_encoded_before_an_interruption_is_kept() -> None:
    def answer(texts: list[str]) -> Any:
        if len(inner.asked) == 3:
            raise KeyboardInterrupt
        return np.array([vector(text) for text in texts])

    inner = Recording(answer)
    cached = CachedEncoder(inner)
    texts = [str(i) for i in range(700)]
    seen: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        cached.encode(texts, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(256, 700), (512, 700)] and len(cached) == 512
    inner.asked.clear()
    cached.encode(texts)
    assert [len(part) for part in inner.asked] == [188]


def test_two_threads_that_ask_for_one_text_encode_it_once() -> None:
    gate = threading.Event()

    def answer(texts: list[str]) -> Any:
        gate.wait(30)
        return np.array([vector(text) for text in texts])

    inner = Recording(answer)
    cached = CachedEncoder(inner)
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(cached.encode(["same", f"own {i}"]))) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(30)
    flat = [text for part in inner.asked for text in part]
    assert sorted(flat) == sorted({"same", *(f"own {i}" for i in range(6))})
    assert len(results) == 6 and all((r[0] == vector("same")).all() for r in results)
    assert cached.usage.texts == 12 and cached.usage.misses == 7


def test_known_texts_are_answered_while_another_thread_encodes() -> None:
    inside, gate = threading.Event(), threading.Event()
    inner = Recording()
    cached = CachedEncoder(inner)
    cached.encode(["known"])

    def answer(texts: list[str]) -> Any:
        inside.set()
        gate.wait(30)
        return np.array([vector(text) for text in texts])

    inner.answer = answer
    other = threading.Thread(target=lambda: cached.encode(["slow"]))
    other.start()
    assert inside.wait(30)
    np.testing.assert_array_equal(cached.encode(["known"])[0], vector("known"))
    gate.set()
    other.join(30)
    assert not other.is_alive()


def test_an_encoder_that_blocks_fails_the_call_and_its_late_answer_is_kept() -> None:
    gate = threading.Event()

    def answer(texts: list[str]) -> Any:
        gate.wait(30)
        return np.array([vector(text) for text in texts])

    inner = Recording(answer)
    cached = CachedEncoder(inner, timeout=0.05)
    with pytest.raises(EncoderError, match=r"did not answer within 0\.05 s"):
        cached.encode(["a"])
    with pytest.raises(EncoderError, match="still hangs"):
        cached.encode(["b"])
    assert inner.asked == [["a"]]
    gate.set()
    for _ in range(1000):
        if len(cached):
            break
        time.sleep(0.01)
    np.testing.assert_array_equal(cached.encode(["a"])[0], vector("a"))
    assert inner.asked == [["a"]]


def test_a_thread_that_waits_its_turn_too_long_is_told() -> None:
    inside, gate = threading.Event(), threading.Event()

    def answer(texts: list[str]) -> Any:
        inside.set()
        gate.wait(30)
        return np.array([vector(text) for text in texts])

    cached = CachedEncoder(Recording(answer))
    other = threading.Thread(target=lambda: cached.encode(["slow"]))
    other.start()
    assert inside.wait(30)
    cached._timeout = 0.05  # the first call was made without a limit
    with pytest.raises(EncoderError, match="did not get to this call"):
        cached.encode(["mine"])
    gate.set()
    other.join(30)


def test_bad_arguments_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="max_entries = 0"):
        CachedEncoder(Recording(), 0)
    with pytest.raises(ConfigError, match="timeout = 0"):
        CachedEncoder(Recording(), timeout=0)
    with pytest.raises(ConfigError, match="name"):
        CachedEncoder(CallableEncoder(len), disk=tmp_path)
    with pytest.raises(TypeError, match="single string"):
        CachedEncoder(Recording()).encode("text")  # type: ignore[arg-type]
