"""Tokens where no tokenizer is known: an endpoint's model keeps its own to itself."""

import functools

from flax import nnx
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from gemjax.models.config import DecoderConfig
from gemjax.models.language import LanguageModel

# Vocabularies of today hold most words of four letters and split longer ones; a number goes by up to three digits; what
# is written in other scripts and signs takes a token a character or more.
_PIECES = r" ?[A-Za-z]{1,4}|[A-Za-z]{1,4}|\p{N}{1,3}|\p{L}{1,2}|\s|[^\s\p{L}\p{N}]"


@functools.cache
def estimating_model() -> LanguageModel:
    """A model that can only count: every text is cut into pieces of few characters, more than a real tokenizer makes of
    running text. It needs no file. Asking it for scores fails."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    config = DecoderConfig(
        vocab_size=1,
        hidden_size=2,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        max_position_embeddings=1,
    )
    return LanguageModel(config, nnx.State({}), tokenizer, name="estimate")
