"""What is read from a sentence-transformers folder, in the layouts that its versions wrote."""

from pathlib import Path
from typing import Any

import pytest

from gemjax.errors import WeightsError
from gemjax.models.sentence import SentenceConfig, read_sentence_config
from tests.models.tiny import write_json, write_model


def test_reads_the_older_layout(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", window=24, pooling="cls", lowercase=True)
    assert read_sentence_config(folder) == SentenceConfig(folder, "cls", 24, True, "")


def test_reads_the_newer_layout(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    kinds = ["base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling"]
    write_json(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
            for i, (path, kind) in enumerate(zip(["", "1_Pooling"], kinds, strict=True))
        ],
    )
    write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": 16, "pooling_mode": "cls"})
    write_json(
        folder / "sentence_bert_config.json",
        {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "module_output_name": "token_embeddings",
        },
    )
    write_json(folder / "tokenizer_config.json", {"model_max_length": 20})
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    assert read_sentence_config(folder) == SentenceConfig(folder, "cls", 20, False, "query: ")


def test_a_bare_transformer_is_mean_pooled_without_a_limit(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    write_json(folder / "tokenizer_config.json", {"model_max_length": 10**30})
    assert read_sentence_config(folder) == SentenceConfig(folder, "mean", None, False, "")


def test_the_transformer_may_lie_in_a_subfolder(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", window=12)
    inner = folder / "0_Transformer"
    inner.mkdir()
    (folder / "sentence_bert_config.json").rename(inner / "sentence_bert_config.json")
    modules = [{"path": "0_Transformer", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    write_json(folder / "modules.json", modules)
    config = read_sentence_config(folder)
    assert (config.folder, config.window) == (inner, 12)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", [{"path": "", "type": "x.Transformer"}, {"path": "2", "type": "x.Dense"}], "Dense"),
        ("modules.json", {"no": "list"}, "damaged"),
        ("modules.json", [1], "damaged"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "mean"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "max"),
        ("1_Pooling/config.json", {"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
        ("1_Pooling/config.json", [], "no JSON object"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length"),
        ("sentence_bert_config.json", {"max_seq_length": "256"}, "max_seq_length"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("sentence_bert_config.json", {"modality_config": {"image": {}}}, "read text"),
        ("sentence_bert_config.json", {"query_expansion": {"x": 1}}, "query_expansion"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q", "prompts": {}}, "'q'"),
    ],
)
def test_what_would_change_the_vector_is_refused(tmp_path: Path, file: str, content: Any, message: str) -> None:
    folder = write_model(tmp_path / "m")
    write_json(folder / file, content)
    with pytest.raises(WeightsError, match=message):
        read_sentence_config(folder)


def test_a_prompt_outside_the_pooling_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean", "include_prompt": False})
    assert read_sentence_config(folder).pooling == "mean"
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    with pytest.raises(WeightsError, match="prompt"):
        read_sentence_config(folder)


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "modules.json").write_text("{", "utf-8")
    with pytest.raises(WeightsError, match=r"modules\.json is damaged"):
        read_sentence_config(folder)
    (folder / "modules.json").unlink()
    write_model(tmp_path / "n")
    (tmp_path / "n" / "1_Pooling" / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json cannot be read"):
        read_sentence_config(tmp_path / "n")
