"""How a model wants a conversation written: its chat template, rendered in a sandbox, and what ends a turn."""

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from gemjax.errors import GenerationError, WeightsError
from gemjax.models.gguf import GGUFFile
from gemjax.models.opening import no_panic, read_json_file, regular_file
from gemjax.models.sentence import transformer_folder
from gemjax.models.tokenizer import readable
from gemjax.models.weights import ModelFiles

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For a model without a template whose vocabulary has ChatML's marks."""

PLAIN = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""For a model without a template and without ChatML's marks."""

# Tokens that end a turn or a text in the templates of the supported families.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "</s>")
_TEMPLATE_BYTES = 1 << 20
_RENDERED_CHARS = 16 << 20
_LARGE = 1 << 20


@dataclass(frozen=True)
class PromptFormat:
    """A model's way to write a conversation.

    Attributes:
        template: Jinja source; it sees `messages`, `add_generation_prompt`, `bos_token` and `eos_token`.
        tokenizer: the model's.
        ends: ids of the tokens that end an answer, ascending.
        bos_token, eos_token: as the model writes them; empty where it has none.
    """

    template: str
    tokenizer: Tokenizer
    ends: tuple[int, ...]
    bos_token: str = ""
    eos_token: str = ""

    @classmethod
    def of(
        cls, files: ModelFiles, gguf: Path | None, tokenizer: Tokenizer, opened: GGUFFile | None = None
    ) -> "PromptFormat":
        """What the files of `find_language_model` say; without a template ChatML or plain lines.

        `opened`: the GGUF file, where it is open already.

        Raises:
            WeightsError: a file is damaged, or the template is larger than 1 MB.
        """
        if gguf is not None:
            found = _from_gguf(GGUFFile(gguf) if opened is None else opened)
        else:
            found = _from_folder(transformer_folder(files.folder))
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        template = found.template or (CHATML if "<|im_start|>" in vocabulary else PLAIN)
        named = [vocabulary[token] for token in _ENDS if token in vocabulary]
        ends = sorted({*named, *(i for i in found.ends if i in range(tokenizer.get_vocab_size(True)))})
        return cls(template, tokenizer, tuple(ends), found.bos, found.eos)

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt of a conversation, up to where the assistant goes on.

        Raises:
            GenerationError: the template refuses the conversation (roles out of order, for one) or does not render.
        """
        values = {"bos_token": self.bos_token, "eos_token": self.eos_token, "add_generation_prompt": True}
        pieces, size = [], 0
        try:
            for piece in _compiled(self.template).generate(messages=[dict(m) for m in messages], **values):
                pieces.append(piece)
                size += len(piece)
                if size > _RENDERED_CHARS:
                    raise ValueError(f"it wrote more than {_RENDERED_CHARS:,} characters")
        except Exception as error:  # whatever a stranger's template raises
            raise GenerationError(f"the model's chat template does not render this conversation: {error}") from error
        return "".join(pieces)

    def tokens(self, messages: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """The prompt's token ids, int32 `[n]`.

        A mark of the template that stands in a message's text is text: it cannot open another turn.

        Raises:
            GenerationError: see `render`.
        """
        marks = [token.content for token in self.tokenizer.get_added_tokens_decoder().values()]
        if not any(mark in message["content"] for mark in marks for message in messages):
            return self._encode(self.render(messages), special=True)
        # Placeholders of a private-use character keep the template's part and the messages' apart.
        held = {f"\ue000{i}\ue001": message["content"] for i, message in enumerate(messages)}
        prompt = self.render([{**m, "content": key} for m, key in zip(messages, held, strict=True)])
        ids: list[np.ndarray] = []
        for key, text in held.items():
            before, found, rest = prompt.partition(key)
            if not found:  # the template leaves this message out
                continue
            ids += [self._encode(before, special=True), self._encode(text, special=False)]
            prompt = rest
        return np.concatenate([*ids, self._encode(prompt, special=True)])

    def _encode(self, text: str, *, special: bool) -> np.ndarray:
        tokenizer = self.tokenizer if special else _blind(self.tokenizer)
        with no_panic("a prompt, with this tokenizer,"):
            return np.asarray(tokenizer.encode(readable(text), add_special_tokens=False).ids, np.int32)


@functools.lru_cache(maxsize=8)
def _blind(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, to which special tokens are text like any other."""
    blind = Tokenizer.from_str(tokenizer.to_str())
    blind.encode_special_tokens = True
    return blind


@dataclass(frozen=True)
class _Found:
    template: str | None
    ends: tuple[int, ...]
    bos: str
    eos: str


def _from_gguf(file: GGUFFile) -> _Found:
    fields, template = file.tokenizer_fields(), file.chat_template
    tokens = fields.get("tokens") or []

    def token(name: str) -> str:
        number = fields.get(f"{name}_token_id")
        return str(tokens[number]) if isinstance(number, int) and 0 <= number < len(tokens) else ""

    ends = tuple(n for n in (fields.get("eos_token_id"), fields.get("eot_token_id")) if isinstance(n, int))
    return _Found(_checked(template, str(file.path)), ends, token("bos"), token("eos"))


def _from_folder(folder: Path) -> _Found:
    settings: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = folder / name
        if path.is_file():
            value = read_json_file(path)
            if not isinstance(value, dict):
                raise WeightsError(f"{path}: expected an object, got {type(value).__name__}")
            settings |= value
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {str(t.get("name")): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        regular_file(alone, _TEMPLATE_BYTES)
        template = alone.read_text("utf-8", "replace")
    given = settings.get("eos_token_id")
    ends = tuple(n for n in (given if isinstance(given, list) else [given]) if isinstance(n, int))
    return _Found(
        _checked(template, str(folder)), ends, _written(settings, "bos_token"), _written(settings, "eos_token")
    )


def _written(settings: Mapping[str, Any], name: str) -> str:
    token = settings.get(name)
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""


def _checked(template: Any, place: str) -> str | None:
    if template is None:
        return None
    if not isinstance(template, str):
        raise WeightsError(f"{place}: chat_template is a {type(template).__name__}; expected a string")
    if len(template) > _TEMPLATE_BYTES:
        raise WeightsError(f"{place}: the chat template has {len(template):,} characters; more than 1 MB is none")
    return template


@functools.lru_cache(maxsize=32)
def _compiled(source: str) -> Any:
    """A template that can reach nothing but what it is given: files of strangers hold them."""
    try:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise GenerationError("chat templates need the jinja2 package: pip install 'gemjax[local]'") from error

    class Sandbox(ImmutableSandboxedEnvironment):
        """What would take the machine's memory in one step is refused before it is made."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            for one, other in ((left, right), (right, left)):
                size = len(one) if isinstance(one, str | list | tuple) else abs(one) if operator == "**" else 0
                if isinstance(other, int) and size * abs(other) > _LARGE:
                    raise ValueError(f"{operator} of more than {_LARGE:,}")
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
            if any(isinstance(value, int) and abs(value) > _LARGE for value in (*given, *named.values())):
                raise ValueError(f"a call with a number above {_LARGE:,}")
            return super().call(context, function, *given, **named)

    def refuse(message: str) -> None:
        raise ValueError(message)

    def as_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = as_json
    # They pad to any width that a template names.
    for padding in ("center", "format", "indent", "wordwrap"):
        environment.filters.pop(padding)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(source)
