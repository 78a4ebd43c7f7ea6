"""Reads safetensors files: memory-mapped, checked before use, bfloat16 included."""

import json
import math
import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from gemjax.errors import WeightsError
from gemjax.models.opening import inside, read_json_file, regular_file

_DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
# The format allows 100 MB. The largest published models have headers of some MB, and JSON takes ten times its size in
# memory.
_MAX_HEADER = 16 << 20
_MAX_AXES = 8
# Beyond any file: numbers of thousands of digits would make the arithmetic below slow.
_MAX_NUMBER = 1 << 60


class TensorFile(Mapping[str, np.ndarray]):
    """The tensors of one safetensors file by name, as read-only views of the mapped file.

    The whole header is checked at construction, so a truncated or damaged file is refused before any tensor is used.

    Args:
        path: the file.

    Raises:
        WeightsError: the file cannot be read, is no safetensors file, or its header contradicts its size.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        regular_file(self.path)
        try:
            self._bytes = np.memmap(self.path, np.uint8, mode="r")
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise WeightsError(f"cannot read weights from {self.path}: {error}") from error
        self._start, header = self._header()
        self._spans = {name: self._span(name, entry) for name, entry in header.items() if name != "__metadata__"}

    def _header(self) -> tuple[int, dict[str, object]]:
        size = self._bytes.size
        length = int.from_bytes(self._bytes[:8].tobytes(), "little") if size >= 8 else 0
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise WeightsError(f"{self.path} is not a safetensors file, or is cut off: {size} bytes, header {length}")
        try:
            header = json.loads(self._bytes[8 : 8 + length].tobytes())
        except (ValueError, RecursionError) as error:
            raise WeightsError(f"{self.path} is not a safetensors file: its header is no JSON ({error})") from error
        if not isinstance(header, dict):
            raise WeightsError(f"{self.path} is not a safetensors file: its header is no JSON object")
        return 8 + length, header

    def _span(self, name: str, entry: object) -> tuple[np.dtype, tuple[int, ...], int, int]:
        try:
            dtype_name, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]  # type: ignore[index]
            axes_ok = isinstance(dtype_name, str) and len(shape) <= _MAX_AXES
            sizes_ok = axes_ok and all(type(n) is int and 0 <= n <= _MAX_NUMBER for n in (*shape, begin, end))
        except (TypeError, KeyError, ValueError):
            sizes_ok = False
        if not sizes_ok:
            raise WeightsError(f"{self.path}: the entry of tensor {name!r} is malformed: {str(entry)[:200]}")
        if dtype_name not in _DTYPES:
            raise WeightsError(f"{self.path}: tensor {name!r} has dtype {dtype_name!r}; known are {', '.join(_DTYPES)}")
        dtype = _DTYPES[dtype_name]
        if begin + math.prod(shape) * dtype.itemsize != end or self._start + end > self._bytes.size:
            raise WeightsError(
                f"{self.path}: tensor {name!r} ({dtype_name} {list(shape)}) does not fit its bytes {begin}..{end} "
                f"of {self._bytes.size - self._start}; the file is cut off or damaged"
            )
        return dtype, shape, self._start + begin, self._start + end

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, shape, begin, end = self._spans[name]
        return self._bytes[begin:end].view(np.ndarray).view(dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder: `model.safetensors`, or the shards its index names.

    Raises:
        WeightsError: there are none (said apart when only pickled weights are there), or a shard is missing.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        try:
            named = set(read_json_file(index)["weight_map"].values())
        except (KeyError, TypeError, AttributeError) as error:
            raise WeightsError(f"{index} is damaged: {error!r}") from error
        shards = sorted(inside(folder, name, index) for name in named)
        if missing := [shard.name for shard in shards if not shard.is_file()]:
            raise WeightsError(f"{folder} lacks the weight files {missing} that its index names")
        return shards
    if pickled := sorted(path.name for path in folder.glob("*.bin")):
        raise WeightsError(
            f"{folder} holds only pickled weights ({pickled[0]}), which can run code when loaded; "
            "save them as model.safetensors first (save_pretrained does)"
        )
    raise WeightsError(f"{folder} holds no model.safetensors")


def open_tensors(folder: Path) -> Mapping[str, np.ndarray]:
    """Every tensor of the model in `folder`, by name. Raises `WeightsError` as `weight_files` and `TensorFile` do."""
    # ChainMap is typed for mutable mappings; nothing here writes.
    return ChainMap(*(TensorFile(path) for path in weight_files(folder)))  # type: ignore[arg-type]
