"""What one call of the compressor did, block by block."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

Status = Literal["compressed", "unchanged", "reverted", "failed"]


@dataclasses.dataclass(frozen=True, slots=True)
class BlockRecord:
    """The fate of one block.

    Attributes:
        index: position among the complete blocks, oldest first.
        label: tool and arguments in one short line.
        messages: indices into the request's messages.
        chars: characters in the serialised request.
        protected: rule name -> reason, for each rule that names the block.
        residual: share of its direction outside the core's span, 0 to 1; None where no selection ran.
        in_core: part of the core.
        kept: forwarded.
        why: one line.
        unknown: what it wrote, touched, read and reported is not known, since reading it would have cost more work than
            a block or a request may cost; the rules that look at that pass it over.
    """

    index: int
    label: str
    messages: tuple[int, ...]
    chars: int
    protected: dict[str, str]
    residual: float | None
    in_core: bool
    kept: bool
    why: str
    unknown: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class EncoderUsage:
    """What this call asked of the encoder: texts encoded, their tokens (None: not counted), cache hits, seconds."""

    texts: int = 0
    tokens: int | None = 0
    hits: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class CompressionResult:
    """The outcome of `HistoryCompressor.compress`.

    Attributes:
        request: what to send. The very object that came in unless `status` says otherwise.
        status: `compressed`; `unchanged` (nothing to drop, `reason` says why); `reverted` (what was rebuilt did not
            pass validation); `failed` (an invalid request, an encoder failure). Only `compressed` differs from the
            input, and `failed` where results went out short before (`shortened`).
        reason: one line.
        event: a global reselection happened.
        coverage: captured energy E of the core (Eq. 3); None where no selection ran.
        core: indices of the core's blocks.
        forwarded: indices of the forwarded blocks.
        chars_before, chars_after: characters of the request as compact JSON (Eq. 8).
        first_changed_message: position in what is forwarded from which a provider's prompt cache is lost, compared with
            this session's last request; None when what was sent before is a prefix of what is sent now.
        encoder: what this call asked of the encoder.
        stripped: indices of the messages of the request that came in which go out as copies without their thinking
            (`GEMConfig(bound_thinking=)`); every forwarded message that is neither here nor in `shortened` is the
            caller's own object.
        unknown: indices of the blocks of which it is not known what they did (`BlockRecord.unknown`).
        shortened: indices of the messages of the request that came in which go out as copies with shorter results
            (`GEMConfig(arrival=)`).
    """

    request: Any
    status: Status
    reason: str
    event: bool = False
    coverage: float | None = None
    core: tuple[int, ...] = ()
    forwarded: tuple[int, ...] = ()
    chars_before: int = 0
    chars_after: int = 0
    first_changed_message: int | None = None
    encoder: EncoderUsage = EncoderUsage()
    stripped: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    shortened: tuple[int, ...] = ()
    _records: Callable[[], list[BlockRecord]] = dataclasses.field(default=list, repr=False, compare=False)

    @cached_property
    def blocks(self) -> list[BlockRecord]:
        """One record a complete block, oldest first."""
        return self._records()

    @property
    def ratio(self) -> float:
        """Characters sent per character of the full request; 1.0 for a request without any."""
        return self.chars_after / self.chars_before if self.chars_before else 1.0

    def report(self) -> dict[str, Any]:
        """Everything but the request, as JSON values."""
        return {
            "status": self.status,
            "reason": self.reason,
            "event": self.event,
            "coverage": self.coverage,
            "core": list(self.core),
            "forwarded": list(self.forwarded),
            "chars_before": self.chars_before,
            "chars_after": self.chars_after,
            "first_changed_message": self.first_changed_message,
            "encoder": dataclasses.asdict(self.encoder),
            "stripped": list(self.stripped),
            "unknown": list(self.unknown),
            "shortened": list(self.shortened),
            "blocks": [dataclasses.asdict(b) for b in self.blocks],
        }

    def explain(self, width: int | None = None) -> None:
        """Print the summary and one line a block to the terminal."""
        from gemjax.history.explain import print_result

        print_result(self, width=width)
