"""Which checkpoints are measured, when there are too many: as many of one trajectory as of another."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np


def stratified(available: Mapping[str, Sequence[int]], n: int, seed: int) -> list[tuple[str, int]]:
    """`n` checkpoints (all, if there are no more), spread over the trajectories as evenly as they allow.

    The trajectories take turns, in an order drawn from the seed; at its turn each gives one more of its checkpoints,
    in an order drawn from the seed and its id. So no trajectory has two more than another that has some left, a
    larger sample holds every smaller one, and another trajectory beside it changes nothing within one.

    Args:
        available: by trajectory id, the checkpoints that may be taken, ascending.
        n: how many.
        seed: of both orders.

    Returns: (trajectory id, checkpoint), in the order of the draw.
    """
    names = sorted(available, key=lambda name: _digest(seed, name))
    orders = {}
    for name in names:
        rng = np.random.default_rng(int.from_bytes(_digest(seed, name), "little"))
        orders[name] = [available[name][i] for i in rng.permutation(len(available[name]))]
    longest = max(map(len, orders.values()), default=0)
    turns = ((name, orders[name][turn]) for turn in range(longest) for name in names if turn < len(orders[name]))
    return [pair for pair, _ in zip(turns, range(n), strict=False)]


def _digest(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
