"""Small sentence-transformers folders with random weights, written without torch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghij", *(f"##{c}" for c in "abcdefghij"), "cat", "dog", "runs"]


def bert_json(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": len(WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 40,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        **changes,
    }


def bert_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random parameters under their checkpoint names, large enough that every one of them shows in the result."""
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    tables = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (config[size], hidden) for name, size in tables.items()
    }
    dense = {
        "attention.self.query": (hidden, hidden),
        "attention.self.key": (hidden, hidden),
        "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (inner, hidden),
        "output.dense": (hidden, inner),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
        for name, shape in dense.items():
            shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[:1]}
    shapes |= {f"{name}.{part}": (hidden,) for name in norms for part in ("weight", "bias")}
    return {
        name: (0.4 * rng.standard_normal(shape) + name.endswith("LayerNorm.weight")).astype(np.float32)
        for name, shape in shapes.items()
    }


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # Some published files carry these; a loader has to switch them off.
    made.enable_truncation(5)
    made.enable_padding(length=5)
    return made


def write_model(
    folder: Path,
    *,
    window: int | None = 16,
    pooling: str = "mean",
    normalize: bool = True,
    seed: int = 0,
    lowercase: bool = False,
    **changes: Any,
) -> Path:
    """A whole model folder; `changes` go to config.json."""
    config = bert_json(**changes)
    (folder / "1_Pooling").mkdir(parents=True)
    save_file(bert_tensors(config, seed), folder / "model.safetensors")
    tokenizer().save(str(folder / "tokenizer.json"))
    modules = ["Transformer", "Pooling", "Normalize"][: 3 if normalize else 2]
    paths = ["", "1_Pooling", "2_Normalize"]
    write_json(folder / "config.json", config)
    write_json(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(zip(modules, paths, strict=False))
        ],
    )
    flags = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": config["hidden_size"], **flags})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": window, "do_lower_case": lowercase})
    return folder


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), "utf-8")
