"""Histories as prompts, piece by piece: every selection is a subsequence of the full history's pieces."""

from collections.abc import Sequence

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.replay import RecordedTurn
from gemjax.history.blocks import Parsed
from gemjax.history.formats.base import View
from gemjax.history.records import Block, BlockContent
from gemjax.models.language import LanguageModel

ACTION_TOKENS = 256
"""Most tokens of the next action whose loss is measured: its first ones."""
SMALLEST = 16
"""Fewest tokens a piece may be shortened to."""
_MARK = "\n[...]\n"
_GAP = "\n\n"
_HEADING = "ACTION\n"


class Prompts:
    """Reads one model's tokens of histories and next actions; what was read once is kept.

    A prompt is the conversation in the order in which it happened, then the heading under which the next action
    follows. Messages outside blocks (system, user, assistant text, an exchange in flight) are in every prompt of a
    checkpoint; a block is in it or not. Each message and each block is one piece, tokenised by itself and shortened to
    `block_tokens`, whatever else is in the prompt: so prompts of one checkpoint differ by whole pieces only.

    Args:
        model: whose tokenizer is used.
        block_tokens: most tokens of a piece. Its sections (reasoning, text, action, observation) share them evenly,
            what one does not need going to the others, and each keeps its beginning and end.

    Raises:
        ConfigError: `block_tokens` is less than 16.
    """

    def __init__(self, model: LanguageModel, block_tokens: int) -> None:
        if block_tokens < SMALLEST:
            raise ConfigError(f"block_tokens = {block_tokens}; expected at least {SMALLEST}")
        self._model, self._most = model, block_tokens
        self._mark = model.tokenize(_MARK).ids
        self._gap = model.tokenize(_GAP).ids
        self._heading = model.tokenize(_HEADING).ids
        self._known: dict[tuple[str, ...], np.ndarray] = {}

    def action(self, turn: RecordedTurn) -> np.ndarray:
        """The recorded next action, int32 `[m]`: tool names and arguments, the first 256 tokens."""
        if turn.next is None:
            raise ValueError("the turn called no tool")
        return self._model.tokenize(turn.next.action_text.removeprefix(_HEADING)).ids[:ACTION_TOKENS]

    def prompt(self, parsed: Parsed, kept: Sequence[bool] | np.ndarray) -> np.ndarray:
        """Token ids of the history with these blocks, int32 `[n]`.

        Args:
            parsed: the request, as `Reader.parse` read it.
            kept: one entry a block.
        """
        if len(kept) != len(parsed.blocks):
            raise ValueError(f"kept must have one entry a block, got {len(kept)} for {len(parsed.blocks)} blocks")
        return np.concatenate(
            [*(ids for ids, block in self._pieces(parsed) if block is None or kept[block]), self._heading]
        )

    def full_length(self, parsed: Parsed) -> int:
        """Tokens of the prompt with all blocks."""
        return sum(len(ids) for ids, _ in self._pieces(parsed)) + len(self._heading)

    def _pieces(self, parsed: Parsed) -> list[tuple[np.ndarray, int | None]]:
        """Pieces in order, each with the block that it is, if it is one."""
        block_at = {m: block for block in parsed.blocks for m in block.messages}
        pieces: list[tuple[np.ndarray, int | None]] = []
        for index, record in enumerate(parsed.records):
            block: Block | None = block_at.get(index)
            if block is None:
                pieces.append((self._piece(_sections(record.view)), None))
            elif index == block.messages[0]:
                pieces.append((self._piece(block.content.sections), block.index))
        return pieces

    def _piece(self, sections: tuple[str, ...]) -> np.ndarray:
        if sections not in self._known:
            parts = [self._model.tokenize(text).ids for text in sections]
            gaps = len(self._gap) * len(parts)
            shares = fair_shares([len(p) for p in parts], max(self._most - gaps, 0))
            cut = [part for p, share in zip(parts, shares, strict=True) for part in (self._cut(p, share), self._gap)]
            self._known[sections] = np.concatenate(cut) if cut else np.zeros(0, np.int32)
        return self._known[sections]

    def _cut(self, ids: np.ndarray, most: int) -> np.ndarray:
        if len(ids) <= most:
            return ids
        room = most - len(self._mark)
        if room <= 0:
            return ids[:most]
        head = room - room // 2
        return np.concatenate([ids[:head], self._mark, ids[len(ids) - room // 2 :]])


def fair_shares(sizes: Sequence[int], total: int) -> list[int]:
    """How much of `total` each gets when all get the same and none more than it needs; the rest goes to the first.

    >>> fair_shares([5, 100, 30], 60)
    [5, 28, 27]
    """
    shares = [0] * len(sizes)
    left = total
    open_ = [i for i, size in enumerate(sizes) if size]
    while open_ and left >= len(open_):
        each = min(left // len(open_), min(sizes[i] - shares[i] for i in open_))
        for i in open_:
            shares[i] += each
        left -= each * len(open_)
        open_ = [i for i in open_ if shares[i] < sizes[i]]
    for i in open_[:left]:
        shares[i] += 1
    return shares


def _sections(view: View) -> tuple[str, ...]:
    if view.role in ("system", "user"):
        text = view.text.strip()
        return (f"{view.role.upper()}\n{text}",) if text else ()
    return BlockContent(view.reasoning, view.text, view.calls, view.results).sections
