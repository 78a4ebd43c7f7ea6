"""Tiny random torch models of every family that the decoder implements, in folders as a hub gives them."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that 40 positions meet all three ranges of wavelengths.
    "original_max_position_embeddings": 64,
}
KINDS = {
    "smollm2": (
        transformers.LlamaForCausalLM,
        {"rope_theta": 1e5, "rope_type": "default"},
        {"tie_word_embeddings": True},
    ),
    "llama32": (transformers.LlamaForCausalLM, LLAMA3, {"tie_word_embeddings": False, "head_dim": 16}),
    "qwen3": (transformers.Qwen3ForCausalLM, {"rope_theta": 1e6, "rope_type": "default"}, {"head_dim": 12}),
    "qwen2": (transformers.Qwen2ForCausalLM, {"rope_theta": 1e6, "rope_type": "default"}, {}),
}


def torch_model(kind, folder):
    """A torch model with random norms and biases; its weights and a tokenizer of words are saved in the folder."""
    network, rope, more = KINDS[kind]
    torch.manual_seed(0)
    config = network.config_class(**SIZES, rope_parameters=rope, **more)
    model = network(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
        else:  # of the size a trained model has, or attention is uniform and hides a wrong angle
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
    # Two shards for one of them: both layouts are read.
    model.save_pretrained(folder, max_shard_size="60KB" if kind == "qwen3" else "5GB")
    vocabulary = {f"w{i}": i for i in range(SIZES["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return model
