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
from gemjax.models.gguf_header import is_later_part, split_parts
from gemjax.models.gguf_tokenizer import tokenizer_from_gguf
from gemjax.models.opening import damage, regular_file
from gemjax.models.sentence import read_json, transformer_folder
from gemjax.models.tensorfile import open_tensors
from gemjax.models.tokenizer import load_tokenizer
from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL, ModelFiles, find_model

__all__ = [
    "DEFAULT_LANGUAGE_MODEL",
    "OpenedModel",
    "find_language_model",
    "load_model",
    "open_language_model",
    "open_tokenizer",
    "verify_gguf",
    "weights_digest",
]


@dataclasses.dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model's parts, and where they came from."""

    config: DecoderConfig
    params: nnx.State
    tokenizer: Tokenizer
    name: str
    source: str
    pooling: str = "none"
    """What a GGUF file says: none, mean, cls, lasttoken or rank. A folder says it in other files."""
    gguf: GGUFFile | None = None
    """The file, where that is what the model came from."""


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
    if any((files.folder / name).is_file() for name in ("config.json", "modules.json")):
        return files, None
    # Of a split model the first part stands for all.
    found = sorted(path for path in files.folder.glob("*.gguf") if not is_later_part(path))
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
) -> OpenedModel:
    """Configuration, parameters (float32) and tokenizer of a language model.

    A known digest (an installed weights package's) is checked before anything is read.

    Args:
        name_or_path, download, cache_dir: see `find_language_model`.
        device: where the weights go; JAX's default device otherwise.

    Raises:
        WeightsError: no weights, damaged weights, a model the decoder does not implement, or one whose tokens see what
            follows them: it has no loss of the next token.
    """
    return load_model(*find_language_model(name_or_path, download=download, cache_dir=cache_dir), device=device)


def load_model(
    files: ModelFiles, gguf: Path | None, *, device: jax.Device | None = None, head: bool = True
) -> OpenedModel:
    """The parts of what `find_language_model` found.

    Args:
        files, gguf: the folder, and the file in it if that holds the weights.
        device: where the weights go; JAX's default device otherwise.
        head: False leaves a separate output head out: embedding models often come without.

    Raises:
        WeightsError: damaged weights, a model the decoder does not implement, or a head is asked of one that is not
            causal.
    """
    if files.sha256 is not None:
        weights_digest(files, gguf)
    if gguf is None:
        folder = transformer_folder(files.folder)
        with damage(folder / "config.json"):
            config = DecoderConfig.from_json(read_json(folder / "config.json"))
        tensors, pooling, file = open_tensors(folder), "none", None
    else:
        tensors = file = GGUFFile(gguf)
        config, pooling = file.config, file.pooling
    if head and not config.causal:
        raise WeightsError(
            f"{files.name} is not causal (is_causal is false): it encodes texts and predicts no next token; "
            "use it through LastTokenEncoder"
        )
    config = config if head else dataclasses.replace(config, tie_word_embeddings=True)
    tokenizer, params = open_tokenizer(files, gguf, file), load_decoder(config, tensors, device)
    return OpenedModel(config, params, tokenizer, files.name, files.source, pooling, file)


def open_tokenizer(files: ModelFiles, gguf: Path | None, opened: GGUFFile | None = None) -> Tokenizer:
    """The tokenizer of what `find_language_model` found; a `tokenizer.json` beside a GGUF file goes before its own.

    `opened`: the file, where it is open already: its header has hundreds of thousands of fields.

    Raises:
        WeightsError: there is none, or it is damaged.
    """
    if gguf is None:
        return load_tokenizer(transformer_folder(files.folder) / "tokenizer.json")
    beside = gguf.parent / "tokenizer.json"
    if beside.is_file():
        return load_tokenizer(beside)
    return tokenizer_from_gguf((GGUFFile(gguf) if opened is None else opened).tokenizer_fields(), str(gguf))


def weights_digest(files: ModelFiles, gguf: Path | None) -> str:
    """The SHA-256 of what `find_language_model` found. Raises `WeightsError` when another one is known."""
    if gguf is None:
        return files.verify(transformer_folder(files.folder))
    return verify_gguf(gguf, files.sha256, files.name)


def verify_gguf(path: Path, expected: str | None, name: str) -> str:
    """The file's SHA-256, or that of all its parts' digests where the model is split.

    Raises:
        WeightsError: it is not the expected one (None: any will do), or a part is missing.
    """
    digests = []
    for part in split_parts(path):
        regular_file(part)
        with part.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    if expected is not None and digest != expected:
        raise WeightsError(
            f"{path} is damaged or not {name}: sha256 {digest}, expected {expected}; reinstall the package"
        )
    return digest
