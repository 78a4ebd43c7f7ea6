"""A cross-encoder: BERT over a question and a text together, and one number for how well the text answers."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from gemjax.errors import WeightsError
from gemjax.models.bert import Bert, BertConfig, load_bert
from gemjax.models.parameters import Parameters

_POOLER, _CLASSIFIER = "bert.pooler.dense", "classifier"


class PairScorer(nnx.Module):
    """BERT, its pooler (a layer with tanh over the first token) and a classifier of one output.

    Args:
        config: sizes of the network.
        rngs: for random initialisation; the loader fills the values in.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs) -> None:
        self.bert = Bert(config, rngs=rngs)
        self.pooler = nnx.Linear(config.hidden_size, config.hidden_size, rngs=rngs)
        self.classifier = nnx.Linear(config.hidden_size, 1, rngs=rngs)

    def __call__(self, ids: Int[Array, "r s"], types: Int[Array, "r s"], lengths: Int[Array, "r"]) -> Float[Array, "r"]:
        """A score a row, without an activation: larger is better.

        Args:
            ids: token ids, padded at the right.
            types: 0 for the question and 1 for the text, as the tokenizer says.
            lengths: tokens of each row that are no padding.
        """
        places = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        segments = jnp.where(places < lengths[:, None], 0, -1)
        first = self.bert(ids, places, segments, types)[:, 0]
        return self.classifier(jnp.tanh(self.pooler(first)))[:, 0]


@functools.partial(jax.jit, static_argnames="graph")
def score_rows(
    params: nnx.State, ids: Array, types: Array, lengths: Array, *, graph: "nnx.GraphDef[PairScorer]"
) -> Array:
    """`PairScorer` with the weights as an argument: one program serves every checkpoint of the same sizes."""
    return nnx.merge(graph, params)(ids, types, lengths)


class _Without(Mapping[str, np.ndarray]):
    """A checkpoint without its head, which BERT's loader does not know."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._names = [name for name in tensors if not name.startswith((_POOLER, _CLASSIFIER))]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load_pair_scorer(
    config: BertConfig, tensors: Mapping[str, np.ndarray], where: Path | str, device: jax.Device | None = None
) -> PairScorer:
    """A `PairScorer` with the weights of a `BertForSequenceClassification` checkpoint of one label.

    Args:
        config: the sizes the tensors must have.
        tensors: by their checkpoint names.
        where: the folder, for messages.
        device: where the weights go; JAX's default device otherwise.

    Raises:
        WeightsError: a parameter is missing, has another shape or is not finite, or a tensor is unknown.
    """
    names = [f"{part}.{kind}" for part in (_POOLER, _CLASSIFIER) for kind in ("weight", "bias")]
    if missing := [name for name in names if name not in tensors]:
        raise WeightsError(f"{where} is no cross-encoder: it lacks {missing}")
    bert = load_bert(config, _Without(tensors), device)
    hidden = config.hidden_size
    head = Parameters({name: tensors[name] for name in names}, lambda name: name)
    graph, state = nnx.split(nnx.eval_shape(lambda: PairScorer(config, rngs=nnx.Rngs(0))))
    values = {
        "bert": nnx.to_pure_dict(nnx.split(bert)[1]),
        "pooler": {
            "kernel": head.take(names[0], (hidden, hidden)).T,
            "bias": head.take(names[1], (hidden,)),
        },
        "classifier": {"kernel": head.take(names[2], (1, hidden)).T, "bias": head.take(names[3], (1,))},
    }
    nnx.replace_by_pure_dict(state, jax.device_put(values, device))
    scorer: PairScorer = nnx.merge(graph, state)
    return scorer
