"""Scores of tokens for a distiller: which loss, read in which context, its artefacts treated."""

import collections
import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from gemjax.distill.recipe import Recipe
from gemjax.distill.turns import ReadTurn
from gemjax.kernels.host import power_of_two
from gemjax.kernels.sensitivity import average_pool, first_order_bound, impute_ends, normalised_ranks
from gemjax.models.language import LanguageModel, TokenScores


@functools.partial(jax.jit, static_argnames=("impute", "width", "rank"))
def _treat(values: jax.Array, valid: jax.Array, *, impute: bool, width: int, rank: bool) -> jax.Array:
    def one(values: jax.Array, valid: jax.Array) -> jax.Array:
        values = impute_ends(values, valid) if impute else values
        values = average_pool(values, valid, width) if width > 1 else values
        return normalised_ranks(values, valid) if rank else values

    return jax.vmap(one)(values, valid)


class Scored(NamedTuple):
    """Values a token, over all turns one after another, float32 `[n]`.

    Attributes:
        raw: the sensitivities as the model gave them, artefacts and all; zeros for a method without.
        products: the first-order change of the loss when the token is ablated.
        scores: treated: ends imputed, smoothed, ranked, as the configuration says.
        loss: the loss that was differentiated, nats.
    """

    raw: np.ndarray
    products: np.ndarray
    scores: np.ndarray
    loss: float


class ScoreCache:
    """Scores of turns that were read by themselves: a memory that is retrieved again is not read again.

    Keeps the `size` most recently used turns; safe to use from several threads.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._values: collections.OrderedDict[bytes, TokenScores] = collections.OrderedDict()
        self._lock = threading.Lock()

    def scores(
        self, model: LanguageModel, sequences: list[np.ndarray], window: int, progress: Callable[[int], None] | None
    ) -> list[TokenScores]:
        """As `LanguageModel.scores`, asking the model only for what is not here."""
        keys = [ids.tobytes() for ids in sequences]
        with self._lock:
            found = {key: self._values[key] for key in set(keys) & self._values.keys()}
        missing = [i for i, key in enumerate(keys) if key not in found]
        first = {keys[i]: i for i in reversed(missing)}
        fresh = model.scores([sequences[i] for i in first.values()], window=window, progress=progress)
        found |= dict(zip(first, fresh, strict=True))
        self.put(found)
        return [found[key] for key in keys]

    def put(self, values: Mapping[bytes, TokenScores]) -> None:
        """Remember scores by `ids.tobytes()`."""
        with self._lock:
            for key, value in values.items():
                self._values[key] = value
                self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)


def unscored(tokens: int) -> Scored:
    """No pass: every token scores 1, and nothing is known of the loss."""
    zeros = np.zeros(tokens, np.float32)
    return Scored(zeros, zeros, np.ones(tokens, np.float32), 0.0)


def score_turns(
    turns: Sequence[ReadTurn],
    model: LanguageModel,
    recipe: Recipe,
    query: str | None,
    progress: Callable[[int], None] | None = None,
    cache: ScoreCache | None = None,
) -> Scored:
    """Score every token of the turns. A query is used by `loss="query"` only, the cache by `context="turn"`."""
    lengths = [len(turn.tokens.ids) for turn in turns]
    total = sum(lengths)
    if recipe.loss == "none" or not total:
        return unscored(total)
    window = min(recipe.window, model.config.max_position_embeddings)
    if recipe.loss == "query" and query is not None:
        pieces, values = _for_query(turns, model, query, window, progress)
    elif recipe.context == "turn":
        pieces = [(i, i + 1) for i in range(len(turns))]
        cache = ScoreCache() if cache is None else cache
        values = cache.scores(model, [turn.tokens.ids for turn in turns], window, progress)
    else:
        pieces = [(0, len(turns))]
        joined, own = _joined(turns, model)
        found = model.scores([joined], window=window, progress=progress)[0]
        values = [TokenScores(*(part[own] for part in found))]
    raw = np.concatenate([value.sensitivity for value in values])
    products = np.concatenate([value.products for value in values])
    surprisal = np.concatenate([value.surprisal for value in values])
    chosen = surprisal if recipe.loss == "surprisal" else raw
    bounds = np.cumsum([0, *lengths])
    cuts = [int(bounds[first]) for first, _ in pieces] + [total]
    read = [chosen[a:b] for a, b in itertools.pairwise(cuts)]
    scores = np.concatenate(_rows(read, impute=recipe.impute, width=recipe.smoothing, rank=False))
    if recipe.rank:
        by_turn = [scores[a:b] for a, b in itertools.pairwise(bounds)]
        scores = np.concatenate(_rows(by_turn, impute=False, width=1, rank=True))
    return Scored(raw, products, scores.astype(np.float32), float(surprisal.sum()))


def _rows(rows: list[np.ndarray], *, impute: bool, width: int, rank: bool) -> list[np.ndarray]:
    """Treat rows of any length in one call, padded to powers of two both ways, so that few shapes compile."""
    if not (impute or width > 1 or rank):
        return rows
    height, size = power_of_two(len(rows)), power_of_two(max(len(row) for row in rows), 32)
    values, valid = np.zeros((height, size), np.float32), np.zeros((height, size), bool)
    for i, row in enumerate(rows):
        values[i, : len(row)], valid[i, : len(row)] = row, True
    treated = np.asarray(_treat(values, valid, impute=impute, width=width, rank=rank))
    return [treated[i, : len(row)] for i, row in enumerate(rows)]


def _joined(turns: Sequence[ReadTurn], model: LanguageModel) -> tuple[np.ndarray, np.ndarray]:
    """The turns on lines of their own as one sequence, and where the turns' own tokens stand in it."""
    line = model.tokenize("\n").ids
    parts, own, position = [], [], 0
    for number, turn in enumerate(turns):
        if number:
            parts.append(line)
            position += len(line)
        parts.append(turn.tokens.ids)
        own.append(np.arange(position, position + len(turn.tokens.ids)))
        position += len(turn.tokens.ids)
    return np.concatenate(parts), np.concatenate(own)


def _for_query(
    turns: Sequence[ReadTurn],
    model: LanguageModel,
    query: str,
    window: int,
    progress: Callable[[int], None] | None,
) -> tuple[list[tuple[int, int]], list[TokenScores]]:
    """Sensitivity of the query's loss given the turns, as many at once as fit with the query into a window."""
    asked = model.tokenize("\n" + query).ids[: window // 2]
    room = window - len(asked)
    groups: list[tuple[int, int]] = []
    start, used = 0, 0
    for i, turn in enumerate(turns):
        n = len(turn.tokens.ids) + 1
        if i > start and used + n > room:
            groups.append((start, i))
            start, used = i, 0
        used += n
    groups.append((start, len(turns)))
    out = []
    for first, last in groups:
        joined, own = _joined(turns[first:last], model)
        parts = []
        # A single turn beyond the window is read in pieces, each followed by the query.
        for a in range(0, max(len(joined), 1), room):
            piece = joined[a : a + room]
            ids = np.concatenate([piece, asked])
            weights = np.concatenate([np.zeros(len(piece), np.float32), np.ones(len(asked), np.float32)])
            parts.append(model.scores([ids], [weights], window=window, progress=progress)[0])
            parts[-1] = TokenScores(*(value[: len(piece)] for value in parts[-1]))
        whole = TokenScores(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        out.append(TokenScores(*(value[own] for value in whole)))
    return groups, out


_bound = jax.jit(first_order_bound, static_argnames="dim")


def ablation_bound(sensitivity: np.ndarray, dropped: np.ndarray, dim: int) -> float:
    """`first_order_bound` of one text, padded so that few lengths are compiled.

    Args:
        sensitivity: of each token, `[n]`.
        dropped: which tokens are ablated, bool `[n]`.
        dim: the embedding's size.
    """
    n = len(sensitivity)
    size = power_of_two(n, 32)
    scores, mask = np.zeros(size, np.float32), np.zeros(size, bool)
    scores[:n], mask[:n] = sensitivity, dropped
    return float(_bound(scores, mask, dim=dim))
