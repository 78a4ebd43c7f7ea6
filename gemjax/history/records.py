"""What every wire format is parsed into: calls, results, exchanges and removable blocks (paper 3.1, B.1)."""

import dataclasses
import json
from functools import cached_property

from gemjax.history.answers import user_words

SELECTION_CHARS = 12_000
"""Longest selection text of a block, in characters (paper B.1)."""

LABEL_CHARS = 120
"""Longest label of a block, in characters."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. `arguments` is the text as sent: JSON for most tools, free text for custom tools."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class ToolResult:
    """One result. Non-text content stands in `text` as a short typed placeholder; `is_error` is the provider's flag."""

    id: str
    text: str
    is_error: bool = False


@dataclasses.dataclass(frozen=True)
class BlockContent:
    """What one block says, independent of the wire format it came in."""

    reasoning: str
    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]

    @cached_property
    def action_text(self) -> str:
        """The ACTION section alone: tool names and arguments."""
        return _clip("ACTION\n" + "\n".join(f"{c.name} {c.arguments}" for c in self.calls))

    @cached_property
    def sections(self) -> tuple[str, ...]:
        """The selection text's sections, uncut: reasoning, text, action, observation; absent ones left out."""
        sections = []
        if self.reasoning.strip():
            sections.append("ASSISTANT_REASONING\n" + self.reasoning.strip())
        if self.text.strip():
            sections.append("ASSISTANT_TEXT\n" + self.text.strip())
        if self.calls:
            sections.append("ACTION\n" + "\n".join(f"{c.name} {c.arguments}" for c in self.calls))
        observations = [r.text for r in self.results if r.text.strip()]
        if observations:
            sections.append("OBSERVATION\n" + "\n".join(observations))
        return tuple(sections)

    @cached_property
    def selection_text(self) -> str:
        """The encoder's input: at most 12,000 characters, keeping beginning and end (paper B.1)."""
        return _clip("\n\n".join(self.sections))

    @cached_property
    def user_said(self) -> str:
        """One line that says how the user speaks in one of the results, empty if nowhere."""
        by_id = {r.id: r.text for r in self.results}
        if len(by_id) == len(self.results):
            return user_words([(c.name, by_id.get(c.id, "")) for c in self.calls])
        return user_words([(c.name, r.text) for c, r in zip(self.calls, self.results, strict=False)])

    @cached_property
    def label(self) -> str:
        """One short line for a table, such as `bash: pytest -q`."""
        first = self.calls[0]
        more = f" (+{len(self.calls) - 1})" if len(self.calls) > 1 else ""
        return f"{first.name}{more}: {_gist(first.arguments)}"[:LABEL_CHARS]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """One removable block: an assistant message with its calls and every result of theirs.

    `messages` are indices into the request's message list; `key` is the digest of the block's canonical JSON plus an
    occurrence counter, so that equal blocks differ; `chars` is what the block takes in the serialised request.
    """

    index: int
    messages: tuple[int, ...]
    key: str
    chars: int
    content: BlockContent


def _gist(arguments: str) -> str:
    """The first argument that says something, on one line; the text itself if it is no JSON object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = arguments
    if isinstance(value, dict):
        value = next((v for v in value.values() if v not in (None, "", [], {})), "")
    if isinstance(value, list):
        value = " ".join(v if isinstance(v, str) else json.dumps(v) for v in value)
    return " ".join(str(value)[: 4 * LABEL_CHARS].split())


def _clip(text: str, limit: int = SELECTION_CHARS) -> str:
    if len(text) <= limit:
        return text
    marker = "\n[...]\n"
    head = (limit - len(marker)) // 2
    return text[:head] + marker + text[len(text) - (limit - len(marker) - head) :]
