"""Opens a language model's files: a `.gguf` file, or a folder in Hugging Face's layout, wherever they are found."""

import dataclasses
import hashlib
from pathlib import Path

import jax
from flax import nnx
from tokenizers import Tokenizer

from gemjax.errors import WeightsError
from gemjax.models.checkpoint import load_decoder
from gemjax.models.config import DecoderConfig
from gemjax.models.gguf import GGUFFile
from gemjax.models.gguf_tokenizer import tokenizer_from_gguf
from gemjax.models.sentence import read_json
from gemjax.models.tensorfile import open_tensors
from gemjax.models.tokenizer import load_tokenizer
from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL, ModelFiles, find_model

__all__ = ["DEFAULT_LANGUAGE_MODEL", "OpenedModel", "find_language_model", "open_language_model", "verify_gguf"]


@dataclasses.dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model's parts, and where they came from."""

    config: DecoderConfig
    params: nnx.State
    tokenizer: Tokenizer
    name: str
    source: str


def find_language_model(
    name_or_path: str | Path, *, download: bool | None = None, cache_dir: str | Path | None = None
) -> tuple[ModelFiles, Path | None]:
    """Where a language model lies: its folder, and the `.gguf` file if that is what holds its weights.

    Args:
        name_or_path: a `.gguf` file, or anything that `weights.find_model` takes.

    Raises:
        WeightsError: nothing was found, or a folder without `config.json` holds several GGUF files.
    """
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return ModelFiles(path.stem, path.parent.absolute(), "path"), path
    if path.suffix == ".gguf":
        raise WeightsError(f"{name_or_path} is no file")
    files = find_model(name_or_path, download=download, cache_dir=cache_dir)
    if (files.folder / "config.json").is_file():
        return files, None
    found = sorted(files.folder.glob("*.gguf"))
    if len(found) > 1:
        raise WeightsError(f"{files.folder} holds several GGUF files; name one: {[p.name for p in found]}")
    if not found:
        raise WeightsError(f"{files.folder} holds neither a config.json nor a .gguf file")
    return files, found[0]


def open_language_model(
    name_or_path: str | Path,
    *,
    download: bool | None = None,
    device: jax.Device | None = None,
    cache_dir: str | Path | None = None,
    head: bool = True,
) -> OpenedModel:
    """Configuration, parameters (float32) and tokenizer of a language model.

    A known digest (an installed weights package's) is checked before anything is read.

    Args:
        name_or_path, download, cache_dir: see `find_language_model`.
        device: where the weights go; JAX's default device otherwise.
        head: False leaves a separate output head out: embedding models often come without.

    Raises:
        WeightsError: no weights, damaged weights, or a model the decoder does not implement.
    """
    files, gguf = find_language_model(name_or_path, download=download, cache_dir=cache_dir)
    if gguf is None:
        config = DecoderConfig.from_json(read_json(files.folder / "config.json"))
        if files.sha256 is not None:
            files.verify()
        config = config if head else dataclasses.replace(config, tie_word_embeddings=True)
        params = load_decoder(config, open_tensors(files.folder), device)
        return OpenedModel(config, params, load_tokenizer(files.folder / "tokenizer.json"), files.name, files.source)
    if files.sha256 is not None:
        verify_gguf(gguf, files.sha256, files.name)
    file = GGUFFile(gguf)
    beside = gguf.parent / "tokenizer.json"
    tokenizer = load_tokenizer(beside) if beside.is_file() else tokenizer_from_gguf(file.tokenizer_fields(), str(gguf))
    config = file.config if head else dataclasses.replace(file.config, tie_word_embeddings=True)
    return OpenedModel(config, load_decoder(config, file, device), tokenizer, files.name, files.source)


def verify_gguf(path: Path, expected: str, name: str) -> None:
    """Raises `WeightsError` unless the file has this SHA-256."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != expected:
        raise WeightsError(
            f"{path} is damaged or not {name}: sha256 {digest}, expected {expected}; reinstall the package"
        )
