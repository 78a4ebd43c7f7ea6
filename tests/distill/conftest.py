"""A tiny random language model with a byte-level tokenizer: no weights, compiles in a second, knows every script."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gemjax.models.config import DecoderConfig
from gemjax.models.decoder import Decoder
from gemjax.models.language import LanguageModel

TRAINING = [
    "Caroline went to the support group yesterday, and it was so powerful. She hoped to go again in May 2023.",
    "I really think that this is because of the weather, although nobody knows. What do you mean? It's well-known.",
    "我喜欢北京的秋天。 東京は好きです。 مرحبا بالعالم",
] * 4


def tiny_model() -> LanguageModel:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING, trainer)
    config = DecoderConfig(
        vocab_size=384,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=512,
    )
    params = nnx.split(Decoder(config, rngs=nnx.Rngs(0)))[1]
    return LanguageModel(config, jax.tree.map(jnp.asarray, params), tokenizer, name="tiny")


@pytest.fixture(scope="session")
def tiny() -> LanguageModel:
    return tiny_model()
