"""Packs token sequences of any length into a few row shapes."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from gemjax.kernels.host import power_of_two

# Rows of 256 tokens keep the cost of attention inside a row near that of the dense layers' 8 % while a row still holds
# several short texts. A last, nearly empty row may shrink to one of the narrow widths.
_MAIN_WIDTH = 256
_NARROW_WIDTHS = (64, 128)


@dataclasses.dataclass(frozen=True, slots=True)
class PackedRows:
    """One batch: int32 arrays `[rows, width]`, and where each sequence went."""

    ids: np.ndarray
    positions: np.ndarray  # 0, 1, ... inside each sequence
    segments: np.ndarray  # 0, 1, ... inside each row; -1 is padding
    members: np.ndarray  # [n] index of the sequence
    places: np.ndarray  # [n, 2] its row and its segment number


def row_widths(window: int) -> tuple[int, ...]:
    """The wide row widths for sequences of at most `window` tokens: 256, then powers of two up to one that holds it.

    >>> row_widths(256), row_widths(512), row_widths(100)
    ((256,), (256, 512), (128,))
    """
    widths = [min(_MAIN_WIDTH, power_of_two(window))]
    while widths[-1] < window:
        widths.append(2 * widths[-1])
    return tuple(widths)


def batch_sizes(width: int, token_budget: int) -> tuple[int, ...]:
    """How many rows of `width` tokens a batch may have: `token_budget` tokens' worth, then a fourth, down to one.

    >>> batch_sizes(256, 1024), batch_sizes(256, 16384), batch_sizes(512, 256)
    ((4, 1), (64, 16, 4, 1), (1,))
    """
    rows = power_of_two(max(1, token_budget // width))
    sizes = [rows]
    while sizes[-1] > 1:
        sizes.append(max(1, sizes[-1] // 4))
    return tuple(sizes)


def pack(sequences: Sequence[np.ndarray], *, window: int, token_budget: int) -> Iterator[PackedRows]:
    """Packs the sequences into full rows and the rows into batches. The same input always gives the same batches.

    Args:
        sequences: int32 token ids with special tokens, each of 1 to `window` tokens.
        window: the longest sequence allowed.
        token_budget: tokens in a large batch.
    """
    widths = row_widths(window)
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    width_of = np.array(widths)[np.searchsorted(widths, lengths)]
    for width in widths:
        rows = _fill_rows(np.flatnonzero(width_of == width), lengths, width)
        sizes, start = batch_sizes(width, token_budget), 0
        while start < len(rows):
            size = next(size for size in sizes if size <= len(rows) - start)
            batch, start = rows[start : start + size], start + size
            used = max(int(lengths[row].sum()) for row in batch)
            narrow = width if size > 1 else min((w for w in _NARROW_WIDTHS if used <= w), default=width)
            yield _lay_out(sequences, batch, min(narrow, width))


def _fill_rows(indices: np.ndarray, lengths: np.ndarray, width: int) -> list[list[int]]:
    """Best fit, longest first: each sequence goes to the row with the least sufficient room."""
    rows: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(width + 1)]
    rooms = 0  # bit r is set when some row has room r
    for index in indices[np.argsort(-lengths[indices], kind="stable")].tolist():
        length = int(lengths[index])
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
        else:
            room, row = width, len(rows)
            rows.append([])
        rows[row].append(index)
        by_room[room - length].append(row)
        rooms |= 1 << (room - length)
    return rows


def _lay_out(sequences: Sequence[np.ndarray], rows: list[list[int]], width: int) -> PackedRows:
    ids = np.zeros((len(rows), width), np.int32)
    positions, segments = np.zeros_like(ids), np.full_like(ids, -1)
    members, places = [], []
    for r, row in enumerate(rows):
        start = 0
        for slot, index in enumerate(row):
            stop = start + len(sequences[index])
            ids[r, start:stop] = sequences[index]
            positions[r, start:stop] = np.arange(stop - start)
            segments[r, start:stop] = slot
            members.append(index)
            places.append((r, slot))
            start = stop
    return PackedRows(ids, positions, segments, np.array(members), np.array(places))
