"""The local generator as a user has it: answers, ends, streams, batches, contexts, from a folder as a hub gives it."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from gemjax.coremem.generation import GREEDY, Generator, Sampling
from gemjax.coremem.local import LocalGenerator
from gemjax.coremem.pieces import TextPieces
from gemjax.errors import ConfigError, GenerationError, WeightsError
from tests.models.torch_models import SIZES, torch_model

QUESTION = [{"role": "user", "content": "Which colour?"}]


def letters():
    """A tokenizer of bytes, so that characters come in pieces: 256 bytes do not fit, the first 90 do."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda c: (not c.isascii(), c))[
        : SIZES["vocab_size"] - 3
    ]
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in ("<|im_start|>", "<|im_end|>")])
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("smol")
    torch_model("smollm2", path)
    letters().save(str(path / "tokenizer.json"))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": SIZES["vocab_size"] - 1}))
    return path


@pytest.fixture(scope="module")
def generator(folder):
    return LocalGenerator(folder, context=256)


def test_it_is_a_generator(generator):
    assert isinstance(generator, Generator)
    assert generator.context_window == 256 and generator.model
    assert generator.count_tokens(QUESTION) == len(generator._format.tokens(QUESTION))


def test_an_answer_has_its_bill(generator):
    answer = generator.generate(QUESTION, Sampling(max_tokens=30))
    assert answer.prompt_tokens == generator.count_tokens(QUESTION)
    assert 0 < answer.completion_tokens <= 30
    assert answer.finish_reason == ("length" if answer.completion_tokens == 30 else "stop")
    assert answer.text and answer.seconds > 0
    again = generator.generate(QUESTION, Sampling(max_tokens=30))
    assert again.text == answer.text


@pytest.mark.parametrize("length", [1, 2, 8, 9, 10, 17])
def test_no_answer_is_longer_than_asked_and_shorter_ones_begin_alike(generator, length):
    longest = generator.generate(QUESTION, Sampling(max_tokens=40))
    answer = generator.generate(QUESTION, Sampling(max_tokens=length))
    assert answer.completion_tokens == min(length, longest.completion_tokens)
    assert longest.text.startswith(answer.text.rstrip("\ufffd"))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(max_tokens=50, temperature=1.2, top_p=0.9, seed=3)])
def test_a_streams_pieces_are_the_answer(generator, sampling):
    whole = generator.generate(QUESTION, sampling).text
    pieces = list(generator.stream(QUESTION, sampling))
    assert "".join(pieces) == whole
    assert len(pieces) > 1


def test_an_answer_ends_before_a_stop_text(generator):
    free = generator.generate(QUESTION, Sampling(max_tokens=60)).text
    stop = free[5:8]
    sampling = Sampling(max_tokens=60, stop=("never this", stop))
    answer = generator.generate(QUESTION, sampling)
    assert answer.text == free[: free.index(stop)] and answer.finish_reason == "stop"
    assert "".join(generator.stream(QUESTION, sampling)) == answer.text


def test_prompts_together_are_answered_as_alone(generator):
    prompts = [QUESTION, [{"role": "user", "content": "And now a longer question, please?"}], QUESTION]
    sampling = Sampling(max_tokens=20)
    together = generator.generate_batch(prompts, sampling)
    for prompt, answer in zip(prompts, together, strict=True):
        alone = generator.generate(prompt, sampling)
        assert (answer.text, answer.finish_reason, answer.completion_tokens) == (
            alone.text,
            alone.finish_reason,
            alone.completion_tokens,
        )
    assert generator.generate_batch([]) == []


def test_a_prompt_beyond_the_context_says_both_numbers(generator):
    long = [{"role": "user", "content": "word " * 100}]
    tokens = generator.count_tokens(long)
    for call in (generator.generate, generator.stream):
        with pytest.raises(GenerationError, match=f"{tokens} tokens, the context of .* 256"):
            call(long)


def test_the_context_ends_an_answer(generator):
    short = [{"role": "user", "content": "w" * (230 - generator.count_tokens([{"role": "user", "content": ""}]))}]
    answer = generator.generate(short, Sampling(max_tokens=200))
    assert answer.prompt_tokens + answer.completion_tokens <= 256


@pytest.mark.parametrize("context", [0, -1, True, 2.5, SIZES["max_position_embeddings"] + 1])
def test_a_context_out_of_range_is_refused(folder, context):
    with pytest.raises(ConfigError, match="context"):
        LocalGenerator(folder, context=context)


def test_a_model_that_is_nowhere():
    with pytest.raises(WeightsError):
        LocalGenerator("/nowhere/at/all")


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.5},
        {"seed": "x"},
        {"stop": "text"},
        {"stop": ("",)},
    ],
)
def test_sampling_out_of_range_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        Sampling(**change)


def test_characters_come_whole_and_stop_texts_are_held_back():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for text, stops in (("né 東京 👩‍🚀 ok", ()), ("One. Two\n\nThree", ("\n\n",)), ("a STO b STOP c", ("STOP",))):
        pieces = TextPieces(tokenizer, stops)
        given = [pieces.add([i]) for i in tokenizer.encode(text).ids]
        given.append(pieces.finish())
        want = text.split(stops[0])[0] if stops else text
        assert "".join(given) == pieces.text == want
        assert not any("\ufffd" in piece for piece in given)
