"""A decoder that continues texts: keys and values are kept, so that each new token costs one pass over the weights.

The prompt goes through one layer after another by one small program, compiled once; new tokens go through all layers in
one program, several tokens a call. Weights are kept a layer apart: sliced out of a stack they would be copied at every
token, which is what decoding waits for.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels.attention import cached_attention
from gemjax.kernels.host import power_of_two
from gemjax.models.config import DecoderConfig
from gemjax.models.decoder import DecoderLayer, rms_norm, rotary

# Tokens of a prompt that go through the layers at once: the products are at full speed, scores stay small.
CHUNK = 256
_SMALLEST_CHUNK = 32
_SMALLEST_CAPACITY = 256


class Cache(NamedTuple):
    """Keys and values of a batch, one array a layer: `[batch, groups, capacity, head_dim]`."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]

    @property
    def capacity(self) -> int:
        return int(self.keys[0].shape[2])


class Draw(NamedTuple):
    """How the next token is chosen.

    Attributes:
        temperature: what logits are divided by; not used when greedy.
        top_p: the probability that the candidates have together.
        keys: random keys, one a row.
    """

    temperature: Array
    top_p: Array
    keys: Array


class Step(NamedTuple):
    """Where a batch stands.

    Attributes:
        token: the latest token of each row, whose keys are not kept yet, `[batch]`.
        position: its position, `[batch]`.
        done: rows that have ended, `[batch]`.
        number: new tokens so far.
    """

    token: Int[Array, "batch"]
    position: Int[Array, "batch"]
    done: Bool[Array, "batch"]
    number: Int[Array, ""]


@functools.lru_cache(maxsize=32)
def _layer_graph(config: DecoderConfig) -> "nnx.GraphDef[DecoderLayer]":
    return nnx.split(nnx.eval_shape(lambda: DecoderLayer(config, rngs=nnx.Rngs(0))))[0]


def _layer_state(config: DecoderConfig) -> nnx.State:
    """A layer's parameters by shape, to be filled in."""
    return nnx.split(nnx.eval_shape(lambda: DecoderLayer(config, rngs=nnx.Rngs(0))))[1]


def _layer(
    config: DecoderConfig,
    weights: nnx.State,
    x: Array,
    keys: Array,
    values: Array,
    start: Array,
    reach: int | None = None,
) -> tuple[Array, Array, Array]:
    """One layer over new positions of one row; `keys` and `values` are `[groups, capacity, head_dim]`.

    `reach`: how many of the places may hold something that is looked at; None: all.
    """
    layer = nnx.merge(_layer_graph(config), weights)
    q, k, v = layer.project(x, rotary(config, start + jnp.arange(x.shape[0])))
    keys = jax.lax.dynamic_update_slice(keys, k.transpose(1, 0, 2), (0, start, 0))
    values = jax.lax.dynamic_update_slice(values, v.transpose(1, 0, 2), (0, start, 0))
    return layer.finish(x, cached_attention(q, keys[:, :reach], values[:, :reach], start)), keys, values


@functools.partial(jax.jit, static_argnames=("config", "reach"), donate_argnames=("keys", "values"))
def _prefill_layer(
    weights: nnx.State, x: Array, keys: Array, values: Array, start: Array, *, config: DecoderConfig, reach: int
) -> tuple[Array, Array, Array]:
    y, own_keys, own_values = _layer(config, weights, x, keys[0], values[0], start, reach)
    return y, own_keys[None], own_values[None]


@functools.partial(jax.jit, static_argnames="eps")
def _logits(hidden: Array, norm: Array, head: Array, *, eps: float) -> Array:
    return rms_norm(hidden, norm, eps) @ head.T


def nucleus(logits: Float[Array, "vocab"], top_p: Float[Array, ""]) -> Float[Array, "vocab"]:
    """Logits with -inf outside the smallest set of most probable tokens that reach `top_p` together.

    The most probable token always stays (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
    """
    order = jnp.argsort(-logits)
    probabilities = jax.nn.softmax(logits[order])
    before = jnp.cumsum(probabilities) - probabilities
    kept = jnp.zeros(logits.shape, bool).at[order].set(before < top_p)
    return jnp.where(kept.at[order[0]].set(True), logits, -jnp.inf)


def _choose(logits: Array, number: Array, choice: Draw, greedy: bool) -> Array:
    """The next token of each row, `[batch]`."""
    if greedy:
        return jnp.argmax(logits, -1).astype(jnp.int32)

    def one(row: Array, key: Array) -> Array:
        left = nucleus(row / choice.temperature, choice.top_p)
        return jax.random.categorical(jax.random.fold_in(key, number), left)

    return jax.vmap(one)(logits, choice.keys).astype(jnp.int32)


_first = jax.jit(_choose, static_argnames="greedy")


@functools.partial(jax.jit, static_argnames=("config", "steps", "greedy"), donate_argnames="cache")
def _decode(
    layers: tuple[nnx.State, ...],
    embedding: Array,
    norm: Array,
    head: Array,
    cache: Cache,
    step: Step,
    ends: Array,
    choice: Draw,
    *,
    config: DecoderConfig,
    steps: int,
    greedy: bool,
) -> tuple[Array, Cache, Step]:
    """Up to `steps` further tokens of every row, fewer once all have ended; `[steps, batch]`, -1 where none came."""
    batch = step.token.shape[0]
    several = jax.vmap(functools.partial(_layer, config), in_axes=(None, 0, 0, 0, 0))

    def one(weights: nnx.State, x: Array, k: Array, v: Array, position: Array) -> tuple[Array, Array, Array]:
        if batch > 1:
            return several(weights, x, k, v, position)
        # Products with a single vector read the weights at the memory's speed; a batched one of one row does not.
        x, k, v = _layer(config, weights, x[0], k[0], v[0], position[0])
        return x[None], k[None], v[None]

    def body(state: tuple[Array, Array, Cache, Step]) -> tuple[Array, Array, Cache, Step]:
        i, out, cache, step = state
        x = embedding[step.token][:, None]
        keys, values = [], []
        for weights, k, v in zip(layers, cache.keys, cache.values, strict=True):
            x, k, v = one(weights, x, k, v, step.position)
            keys.append(k)
            values.append(v)
        logits = rms_norm(x[:, 0], norm, config.rms_norm_eps) @ head.T
        token = _choose(logits, step.number, choice, greedy)
        out = out.at[i].set(jnp.where(step.done, -1, token))
        done = step.done | (token[:, None] == ends).any(1)
        # A row that has ended writes over its last place: its cache may be full.
        position = jnp.where(step.done, step.position, step.position + 1)
        return i + 1, out, Cache(tuple(keys), tuple(values)), Step(token, position, done, step.number + 1)

    def going(state: tuple[Array, Array, Cache, Step]) -> Array:
        return (state[0] < steps) & ~state[3].done.all()

    start = (jnp.zeros((), jnp.int32), jnp.full((steps, batch), -1, jnp.int32), cache, step)
    _, out, cache, step = jax.lax.while_loop(going, body, start)
    return out, cache, step


class CachedDecoder:
    """A decoder's weights, one layer apart, and the programs that continue texts with them.

    Args:
        config: the sizes.
        params: as `open_language_model` gives them. Their stacked layers are taken apart; give the only reference to
            keep the peak of memory at one copy and the largest stack.
    """

    def __init__(self, config: DecoderConfig, params: nnx.State) -> None:
        values: dict[str, Any] = nnx.to_pure_dict(params)
        self.config = config
        self._embedding, self._norm = values.pop("embedding"), values.pop("norm")
        self._head = values.pop("output", self._embedding)
        stacked = values.pop("layers")
        states = [_layer_state(config) for _ in range(config.num_hidden_layers)]
        parts: list[dict[str, Array]] = [{} for _ in states]
        for name in list(stacked):
            whole = stacked.pop(name)
            for part, row in zip(parts, whole, strict=True):
                part[name] = row
        for state, part in zip(states, parts, strict=True):
            nnx.replace_by_pure_dict(state, part)
        self._layers = tuple(states)

    def empty(self, capacity: int) -> Cache:
        """A cache of one row for up to `capacity` positions, rounded up so that few sizes are compiled."""
        c = self.config
        shape = (1, c.num_key_value_heads, power_of_two(capacity, _SMALLEST_CAPACITY), c.head_dim)
        zeros = lambda: tuple(jnp.zeros(shape) for _ in range(c.num_hidden_layers))  # noqa: E731
        return Cache(zeros(), zeros())

    def prefill(self, ids: np.ndarray, cache: Cache, start: int = 0) -> tuple[Float[Array, "n d"], Cache]:
        """Read a text after the `start` positions that the cache holds.

        Args:
            ids: token ids, `[n]`, at least one; `start + n` positions rounded up to a chunk must fit the cache.
            cache: of one row; it is used up.
            start: positions that are kept already.

        Returns: the last layer's output at the last chunk's positions, and the cache.
        """
        for at in range(0, len(ids), CHUNK):
            part = ids[at : at + CHUNK]
            # Padding writes behind the text, where new tokens write before they look.
            size = min(power_of_two(len(part), _SMALLEST_CHUNK), cache.capacity - start - at)
            x = self._embedding[jnp.asarray(np.pad(part, (0, size - len(part))))]
            keys, values = list(cache.keys), list(cache.values)
            position = jnp.asarray(start + at, jnp.int32)
            reach = min(power_of_two(start + at + size, _SMALLEST_CAPACITY), cache.capacity)
            for i, weights in enumerate(self._layers):
                x, keys[i], values[i] = _prefill_layer(
                    weights, x, keys[i], values[i], position, config=self.config, reach=reach
                )
            cache = Cache(tuple(keys), tuple(values))
            hidden = x[: len(part)]
        return hidden, cache

    def logits(self, hidden: Float[Array, "n d"]) -> Float[Array, "n vocab"]:
        """Next-token logits of the last layer's output."""
        logits: Array = _logits(hidden, self._norm, self._head, eps=self.config.rms_norm_eps)
        return logits

    def first(self, hidden: Sequence[Array], choice: Draw, *, greedy: bool) -> Int[Array, "batch"]:
        """The first new token of each row, from the last position's output of each."""
        logits = self.logits(jnp.stack([row[-1] for row in hidden]))
        token: Array = _first(logits, jnp.zeros((), jnp.int32), choice, greedy=greedy)
        return token

    def decode(
        self, cache: Cache, step: Step, ends: Array, choice: Draw, *, steps: int, greedy: bool
    ) -> tuple[np.ndarray, Cache, Step]:
        """Up to `steps` further tokens of each row.

        Args:
            cache: of the batch; it is used up.
            step: where it stands.
            ends: ids that end a row.
            choice: how a token is chosen.
            steps: static: each number is a program.
            greedy: static: the most probable token.

        Returns: tokens, int32 `[steps, batch]`, -1 after a row's end; the cache; where it stands now.
        """
        out, cache, step = _decode(
            self._layers,
            self._embedding,
            self._norm,
            self._head,
            cache,
            step,
            ends,
            choice,
            config=self.config,
            steps=steps,
            greedy=greedy,
        )
        return np.asarray(out), cache, step
