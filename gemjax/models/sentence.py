"""Reads how a sentence-transformers model folder turns token vectors into a sentence vector."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gemjax.errors import WeightsError
from gemjax.models.opening import inside, read_json_file

_WAY_OUT = "use SentenceTransformerEncoder for this model"
Pooling = Literal["mean", "cls", "lasttoken"]
_LEGACY_POOLING = "pooling_mode_"
# Settings of the transformer module that say nothing about the vector of a plain text.
_HARMLESS = frozenset({"unpad_inputs", "model_args", "tokenizer_args", "config_args", "cache_dir"})


@dataclasses.dataclass(frozen=True, slots=True)
class SentenceConfig:
    """How one model makes a sentence vector."""

    folder: Path  # where config.json, the weights and tokenizer.json lie
    pooling: Pooling
    window: int | None  # tokens of a text, special ones included; None: as many as there are positions
    lowercase: bool
    prompt: str  # put in front of every text


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises `WeightsError` when it is missing or is none."""
    value = read_json_file(path)
    if not isinstance(value, dict):
        raise WeightsError(f"{path} is no JSON object")
    return value


def transformer_folder(folder: Path) -> Path:
    """Where `config.json` and the weights lie: the first module's folder, or `folder` itself without `modules.json`."""
    return _modules(folder)[0][1] if (folder / "modules.json").exists() else folder


def read_sentence_config(folder: Path, poolings: tuple[Pooling, ...] = ("mean", "cls")) -> SentenceConfig:
    """Reads `modules.json` and what it points to.

    Args:
        folder: the model's; one without `modules.json` is a bare transformer, whose pooling is the first of `poolings`
            (sentence-transformers itself takes the mean).
        poolings: those that the caller implements.

    The vectors are unit length whether or not the model lists a Normalize module: that is the `Encoder` contract.

    Raises:
        WeightsError: a file is damaged, or asks for something that would make another vector (other modules, other
            pooling, a prompt that is not pooled).
    """
    transformer, pooling, include_prompt = folder, poolings[0], True
    if (folder / "modules.json").exists():
        (_, transformer), (_, place), *_ = _modules(folder)
        config = read_json(place / "config.json")
        pooling, include_prompt = _pooling(place, config, poolings), config.get("include_prompt", True) is not False
    window, lowercase = _transformer_settings(transformer)
    prompt = _default_prompt(folder)
    if prompt and not include_prompt:
        raise WeightsError(f"{folder}: a prompt that is left out of the pooling is not supported; {_WAY_OUT}")
    return SentenceConfig(transformer, pooling, window, lowercase, prompt)


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules' kinds and folders."""
    path = folder / "modules.json"
    modules = read_json_file(path)
    try:
        # Versions moved the classes around; the last part of the dotted name stayed.
        kinds = [(module["type"].rsplit(".", 1)[-1], inside(folder, module["path"], path)) for module in modules]
    except (TypeError, KeyError, AttributeError) as error:
        raise WeightsError(f"{path} is damaged: {error!r}") from error
    names = [kind for kind, _ in kinds]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise WeightsError(
            f"{folder}: modules {names} are not supported, only Transformer, Pooling, Normalize; {_WAY_OUT}"
        )
    return kinds


def _pooling(folder: Path, config: Mapping[str, Any], poolings: tuple[Pooling, ...]) -> Pooling:
    mode = config.get("pooling_mode")
    if mode is None:
        flags = {k.removeprefix(_LEGACY_POOLING): v for k, v in config.items() if k.startswith(_LEGACY_POOLING)}
        mode = [name.removesuffix("_tokens").removesuffix("_token") for name, on in flags.items() if on] or "mean"
    if isinstance(mode, list) and len(mode) == 1:
        mode = mode[0]
    for known in poolings:
        if mode == known:
            return known
    raise WeightsError(f"{folder}: pooling {mode!r} is not supported, only {' and '.join(poolings)}; {_WAY_OUT}")


def _transformer_settings(folder: Path) -> tuple[int | None, bool]:
    """The window and whether text is lowercased before the tokenizer sees it."""
    path = next((p for p in sorted(folder.glob("sentence_*_config.json"))), None)
    config = dict(read_json(path)) if path else {}
    window, lowercase = config.pop("max_seq_length", None), config.pop("do_lower_case", False)
    expected = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
    for key, value in expected.items():
        if config.pop(key, value) != value:
            raise WeightsError(f"{path}: {key} other than {value!r} is not supported; {_WAY_OUT}")
    modality = config.pop("modality_config", {"text": None})
    if not isinstance(modality, dict) or "text" not in modality:
        raise WeightsError(f"{path}: a model that does not read text is not supported; {_WAY_OUT}")
    if strange := sorted(key for key, value in config.items() if value and key not in _HARMLESS):
        raise WeightsError(f"{path}: settings {strange} are not supported; {_WAY_OUT}")
    if window is None and (folder / "tokenizer_config.json").exists():
        # Newer versions keep the window here. "No limit" is written as a huge number.
        window = read_json(folder / "tokenizer_config.json").get("model_max_length")
        window = window if isinstance(window, int) and window < 1_000_000 else None
    if window is not None and (type(window) is not int or window < 1):
        raise WeightsError(f"{folder}: max_seq_length = {window!r} is no positive integer")
    return window, bool(lowercase)


def _default_prompt(folder: Path) -> str:
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.exists() else {}
    name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
    prompt = prompts.get(name, None) if name is not None and isinstance(prompts, dict) else ""
    if not isinstance(prompt, str):
        raise WeightsError(f"{path}: the default prompt {name!r} is not among its prompts")
    return prompt
