"""What may be passed as an encoder, and what importing encoders costs."""

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemjax.encoders
from gemjax.encoders import (
    CachedEncoder,
    CallableEncoder,
    Encoder,
    FlaxSentenceEncoder,
    SentenceTransformerEncoder,
    as_encoder,
    default,
    default_encoder,
    load_encoder,
)
from gemjax.errors import ConfigError, EncoderError, GemjaxError, WeightsError
from tests.conftest import HashingEncoder
from tests.models.tiny import write_model


def test_importing_encoders_loads_no_framework() -> None:
    heavy = ("jax", "flax", "torch", "transformers", "sentence_transformers", "tokenizers", "huggingface_hub")
    code = f"import sys, gemjax.encoders; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_implementation_is_an_encoder(tmp_path: Path) -> None:
    made = FlaxSentenceEncoder(write_model(tmp_path / "m"))
    for encoder in (
        made,
        HashingEncoder(),
        CachedEncoder(made),
        CallableEncoder(lambda texts: np.eye(len(texts)), dim=1),
    ):
        assert isinstance(encoder, Encoder) and as_encoder(encoder) is encoder
    assert not isinstance(object(), Encoder)


def test_a_name_or_folder_is_loaded(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    for given in (folder, str(folder)):
        assert isinstance(as_encoder(given), FlaxSentenceEncoder)
    with pytest.raises(WeightsError, match="is no folder"):
        as_encoder(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="backend = 'onnx'"):
        load_encoder(folder, backend="onnx")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [3, object(), dict, HashingEncoder])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="is no encoder"):
        as_encoder(given)


def test_a_function_becomes_an_encoder() -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return [[3.0, 4.0] if text else [0, 0] for text in texts]

    made = as_encoder(embed)
    assert isinstance(made, CallableEncoder) and "embed" in made.name and not calls
    np.testing.assert_allclose(made.encode(["a", ""]), [[0.6, 0.8], [0, 0]])
    assert made.dim == 2 and calls == [["a", ""]]
    assert made.encode([]).shape == (0, 2) and len(calls) == 1
    fresh = CallableEncoder(embed)
    assert fresh.dim == 2 and len(calls) == 2


def test_objects_that_are_called_are_named_after_their_class() -> None:
    class Service:
        def __call__(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 3))

    assert "Service" in as_encoder(Service()).name


def test_a_function_that_fails_or_changes_its_mind_is_an_encoder_error() -> None:
    def fails(texts: list[str]) -> Any:
        raise OSError("quota")

    with pytest.raises(EncoderError, match=r"encoder 'api' raised OSError: quota"):
        CallableEncoder(fails, name="api").encode(["a"])

    def known(texts: list[str]) -> Any:
        raise WeightsError("mine")

    with pytest.raises(WeightsError, match="mine"):
        CallableEncoder(known).encode(["a"])
    sizes = iter([2, 3])
    changing = CallableEncoder(lambda texts: np.ones((len(texts), next(sizes))))
    changing.encode(["a"])
    with pytest.raises(EncoderError, match=r"shape \[1, 3\]"):
        changing.encode(["a"])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be callable"):
        CallableEncoder(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dim = 0"):
        CallableEncoder(len, dim=0)
    made = CallableEncoder(lambda texts: np.ones((len(texts), 2)))
    with pytest.raises(TypeError, match="single string"):
        made.encode("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"texts\[1\] is int"):
        made.encode(["a", 1])  # type: ignore[list-item]


def test_the_default_encoder_is_made_once_and_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        if len(made) == 1:
            raise WeightsError("not yet")
        return made[-1]

    monkeypatch.setattr(default, "_default", None)
    monkeypatch.setattr(default, "FlaxSentenceEncoder", make)
    with pytest.raises(GemjaxError, match="not yet"):
        default_encoder()
    assert default_encoder() is default_encoder() is as_encoder() is as_encoder(None)
    assert len(made) == 2


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'gemjax\[sentence-transformers\]'"):
        SentenceTransformerEncoder("all-MiniLM-L6-v2")
    assert isinstance(gemjax.encoders, types.ModuleType)
