"""Encoding in the background: slices in order, turns, what comes late is kept, and a process that ends beside it."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.encoders.background import BackgroundEncoder, LateVectors
from gemjax.errors import EncoderError


class Gated:
    """Answers one call a permit; remembers what was asked."""

    name, dim = "gated", 2

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.asked: list[list[str]] = []
        self.fails = False

    def encode(self, texts: list[str]) -> np.ndarray:
        self.asked.append(list(texts))
        assert self.permits.acquire(timeout=30)
        if self.fails:
            raise ValueError("no quota")
        return np.array([[len(text), 1.0] for text in texts])


def background(slice_chars: int = 10) -> tuple[Gated, CachedEncoder, BackgroundEncoder]:
    inner = Gated()
    cached = CachedEncoder(inner)
    made = BackgroundEncoder(cached)
    made._chars = slice_chars
    made._pace = lambda seconds: None  # type: ignore[method-assign]
    return inner, cached, made


def wait_until(done) -> None:
    for _ in range(3000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_rows_come_in_the_order_of_the_texts_and_known_ones_need_no_thread():
    made = BackgroundEncoder(CachedEncoder(CallableEncoder(lambda texts: [[float(t), 1.0] for t in texts])))
    texts = ["3", "1", "3", "2"]
    rows = made.encode(texts, 30)
    np.testing.assert_allclose(rows[:, 0] / rows[:, 1], [3, 1, 3, 2], rtol=1e-6)
    wait_until(lambda: made._thread is None)
    np.testing.assert_array_equal(made.encode(texts[::-1], 30), rows[::-1])
    assert made._thread is None
    assert made.encode([], 30).shape == (0, 2)


def test_the_most_urgent_come_first_and_what_comes_late_is_kept():
    inner, cached, made = background()
    texts = [f"text {i}" for i in range(6)]  # one slice holds one of them
    with pytest.raises(LateVectors) as late:
        made.encode(texts, 0.05)
    assert late.value.missing == 6
    for _ in texts:
        inner.permits.release()
    wait_until(lambda: len(cached) == 6)
    assert [t for part in inner.asked for t in part] == texts
    assert len(made.encode(texts, 0.05, late.value.job)) == 6 and len(inner.asked) == 6


def test_askers_take_turns_and_a_new_job_takes_the_place_of_the_old_one():
    inner, _, made = background()
    with pytest.raises(LateVectors) as late:
        made.encode([f"long {i}" for i in range(9)], 0.01)
    asker = threading.Thread(target=lambda: made.encode(["short"], 30))
    asker.start()
    wait_until(lambda: len(made._jobs) == 1)
    inner.permits.release(2)
    asker.join(30)
    assert not asker.is_alive() and inner.asked[1] == ["short"]
    with pytest.raises(LateVectors):  # the first asker comes again, and needs something else
        made.encode(["other"], 0.01, late.value.job)
    inner.permits.release(20)
    wait_until(lambda: made._thread is None)
    asked = [t for part in inner.asked for t in part]
    assert "other" in asked and "long 5" not in asked


def test_what_fails_after_its_asker_has_gone_is_told_at_the_next_request():
    inner, _, made = background()
    with pytest.raises(LateVectors) as late:
        made.encode(["a"], 0.01)
    inner.fails = True
    inner.permits.release()
    wait_until(lambda: late.value.job.error is not None)
    with pytest.raises(EncoderError, match="no quota"):
        made.encode(["a"], 30, late.value.job)
    inner.fails = False
    inner.permits.release()
    assert len(made.encode(["a"], 30)) == 1


def ends(program: str, seconds: float = 60) -> tuple[int, str, float]:
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


NATIVE = """
import jax, jax.numpy as jnp, numpy as np, threading
from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.encoders.background import BackgroundEncoder, LateVectors
began = threading.Event()
work = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda i, x: x @ x / 1e3, x))
def slow(texts):
    began.set()
    for _ in texts:
        jax.block_until_ready(work(jnp.ones((600, 600))))
    return np.ones((len(texts), 2))
made = BackgroundEncoder(CachedEncoder(CallableEncoder(slow), timeout={timeout}))
made._chars, made._pace = 1, lambda seconds: None
try:
    made.encode([str(i) for i in range(500)], 0.01)
except LateVectors:
    began.wait()
    print("late", flush=True)
"""


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_process_that_ends_during_native_work_is_not_aborted(timeout):
    status, said, _ = ends(NATIVE.format(timeout=timeout))
    assert (status, said) == (0, "late\n")


HANGING = """
import threading, time
import gemjax.encoders.ending as ending
from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.encoders.background import BackgroundEncoder, LateVectors
ending.PATIENCE = 0.2
made = BackgroundEncoder(CachedEncoder(CallableEncoder(lambda texts: time.sleep(600))))
try:
    made.encode(["a"], 0.01)
except LateVectors:
    print("late", flush=True)
"""


def test_an_encoder_that_hangs_does_not_keep_the_process():
    status, said, _ = ends(HANGING)
    assert (status, said) == (0, "late\n")


THREADED = """
import threading, time
from gemjax.encoders import CachedEncoder, CallableEncoder
from gemjax.encoders.background import BackgroundEncoder
made = BackgroundEncoder(CachedEncoder(CallableEncoder(lambda texts: [[1.0, 2.0]] * len(texts))))
def agent():
    threading.main_thread().join()
    print(made.encode(["a", "b"], 30).shape, flush=True)
threading.Thread(target=agent).start()
"""


def test_an_agent_in_a_thread_that_outlives_the_main_one_is_served():
    status, said, _ = ends(THREADED)
    assert (status, said) == (0, "(2, 2)\n")
