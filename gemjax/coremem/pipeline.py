"""CoreMem: a dialogue goes in; a question brings back a small prompt, and an answer (paper 3.4)."""

import dataclasses
import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gemjax.coremem.answer import Answer, AnswerStream, UnansweredError
from gemjax.coremem.config import CoreMemConfig, check_count
from gemjax.coremem.dates import read_time
from gemjax.coremem.evidence import Evidence, Recollection, block, distilled, in_order
from gemjax.coremem.generation import ChatMessage, Generation, Generator, Sampling
from gemjax.coremem.ledger import AskLedger, Stopwatch, peak_memory
from gemjax.coremem.remembering import Remembered, kept_with, turn_ids
from gemjax.coremem.support import least_support, support_of
from gemjax.coremem.utterances import Utterance, as_utterances
from gemjax.distill import Distiller, EvidenceSelector, Filler, SelectorConfig
from gemjax.distill.turns import TokenReader
from gemjax.errors import ConfigError, MemoryBankError
from gemjax.memory import MemoryBank, MemoryConfig
from gemjax.memory.filters import Where
from gemjax.memory.record import Id, Scope, When, scope_of
from gemjax.models.language import LanguageModel
from gemjax.models.text_tokenizer import TextTokenizer

BATCH = 256
"""Turns that are encoded at once."""

WHOLE_CLAIMS = SelectorConfig(filler=Filler(words=frozenset()), fit="skip")
"""Whole sentences only, questions back and small talk last."""


class CoreMem:
    """The long-term memory of a dialogue agent: remember turns, recall what a question needs, answer it.

    Args:
        bank: a `MemoryBank`, or the directory of one: it is opened when there is one (whichever version of gemjax wrote
            it), else `save` makes it. None: a new bank in memory.
        encoder: for a bank that is made or opened here, see `MemoryBank`.
        generator: answers; None: `recall` works, `ask` needs one.
        distiller: shortens the evidence; None: whole sentences by the search's scores, without a model.
        config: see `CoreMemConfig`.
        clock: the present moment, for turns and questions without a time; None: the system's.

    Thread-safe. A call either succeeds or changes nothing.

    Raises: ConfigError; StateError for a directory that holds no bank, or a damaged one.
    """

    def __init__(
        self,
        bank: MemoryBank | str | os.PathLike[str] | None = None,
        *,
        encoder: Any = None,
        generator: Generator | None = None,
        distiller: EvidenceSelector | Distiller | None = None,
        config: CoreMemConfig | None = None,
        clock: Callable[[], dt.datetime] | None = None,
    ) -> None:
        self.config = CoreMemConfig() if config is None else config
        if not isinstance(self.config, CoreMemConfig):
            raise ConfigError(f"config must be a CoreMemConfig or None, got {type(config).__name__}")
        if generator is not None and not isinstance(generator, Generator):
            raise ConfigError(
                f"{type(generator).__name__} is no generator: it needs model, context_window, count_tokens, generate "
                "and stream (gemjax.coremem.generation)"
            )
        self._clock = clock or _now
        self.path: Path | None = None
        if isinstance(bank, MemoryBank):
            if encoder is not None:
                raise ConfigError("encoder is for a bank that is made here; the bank that is given has its own")
            self.bank = bank
        else:
            settings = self.config.memory or MemoryConfig.hybrid()
            self.path = None if bank is None else Path(bank)
            if self.path is not None and self.path.exists():
                # Whatever it was made with: the metric is fitted from the moments, which no setting but dtype changes.
                self.bank = MemoryBank.load(
                    self.path, encoder, lambda saved: dataclasses.replace(settings, dtype=saved.dtype)
                )
            else:
                self.bank = MemoryBank(encoder, settings, clock=self._clock)
        self.generator = generator
        self._distiller = distiller
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.bank)

    def __repr__(self) -> str:
        return f"CoreMem({self.bank!r}, generator={None if self.generator is None else self.generator.model!r})"

    @property
    def distiller(self) -> EvidenceSelector | Distiller:
        """What shortens the evidence; None was given: `EvidenceSelector(WHOLE_CLAIMS)`, which counts by the generator's
        own tokenizer where that is known here, else by the default one."""
        with self._lock:
            if self._distiller is None:
                tokenizer = getattr(self.generator, "tokenizer", None)
                known = isinstance(tokenizer, TextTokenizer | LanguageModel)
                self._distiller = EvidenceSelector(WHOLE_CLAIMS, tokenizer=tokenizer if known else None)
            return self._distiller

    def _count(self, text: str) -> int:
        distiller = self.distiller
        counter: TokenReader = distiller.model if isinstance(distiller, Distiller) else distiller.tokenizer
        return counter.count(text)

    # ---- remembering ---------------------------------------------------------------------------------------------

    def remember(
        self,
        turns: Sequence[Utterance | str | tuple[str, str] | Mapping[str, Any]],
        *,
        session: str | None = None,
        scope: str | Sequence[str] = (),
        happened_at: When | int | float = None,
        metadata: Mapping[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Remembered:
        """Take in the turns of a dialogue, in order. Remembering the same turns again adds nothing.

        A turn is the same when scope, session, time, speaker and text are, and as many of that kind came before it in
        the call. So a dialogue that goes on can be handed over whole each time.

        Args:
            turns: see `as_utterances`: LoCoMo's turns, chat messages, pairs `(speaker, text)`, strings.
            session: the dialogue's name; turns of one session are neighbours. None: the turn's own, else the day on
                which it was said.
            scope: whose memories these are, widest name first.
            happened_at: when, for turns that do not say; None: now.
            metadata: kept with every turn, beside `speaker`, `place` (the turn's number in the call) and `turn` (its
                own id, if any).
            progress: called with the number of turns done since the last call.

        Raises: MemoryBankError naming the turn; EncoderError. Nothing is remembered then. An interruption
            (KeyboardInterrupt) keeps what is encoded: the same call again adds the rest.
        """
        said = as_utterances(turns)
        names = scope_of(scope)
        given = read_time(happened_at, "happened_at")
        now = self._clock() if given is None else given
        if session is not None and not (isinstance(session, str) and session):
            raise MemoryBankError(f"session must be a non-empty string or None, got {session!r:.40}")
        if not isinstance(metadata, Mapping | None):
            raise MemoryBankError(f"metadata must be a mapping or None, got {type(metadata).__name__}")
        times = [turn.time or now for turn in said]
        sessions = [session or turn.session or when.date().isoformat() for turn, when in zip(said, times, strict=True)]
        # By what was said of them only: a turn without time or session is the same turn tomorrow.
        ids = turn_ids(said, names, [session or turn.session for turn in said], [turn.time or given for turn in said])
        with self._lock:
            new = [i for i, id in enumerate(ids) if id not in self.bank]
            if progress and len(new) < len(ids):
                progress(len(ids) - len(new))
            done: list[Id] = []
            try:
                for start in range(0, len(new), BATCH):
                    part = new[start : start + BATCH]
                    done += self.bank.add(
                        [said[i].said for i in part],
                        ids=[ids[i] for i in part],
                        metadata=[kept_with(said[i], i, metadata) for i in part],
                        scope=names,
                        sessions=[sessions[i] for i in part],
                        happened_at=[times[i] for i in part],
                    )
                    if progress:
                        progress(len(part))
            except Exception:
                self.bank.remove(done)
                raise
        return Remembered(tuple(ids), len(new), len(ids) - len(new))

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the bank to its directory, or to another one, atomically.

        Raises: ConfigError without a directory; StateError when it cannot be written: what was there is unchanged.
        """
        target = self.path if path is None else Path(path)
        if target is None:
            raise ConfigError("this memory has no directory: name one")
        self.bank.save(target)
        self.path = self.path or target
        return target

    # ---- recalling -----------------------------------------------------------------------------------------------

    def recall(
        self,
        question: str,
        budget: int | None = None,
        *,
        scope: str | Sequence[str] = (),
        where: Where | None = None,
        reference_date: When | int | float = None,
    ) -> Recollection:
        """The evidence for a question within a budget of tokens.

        Args:
            question: any text.
            budget: the most tokens of evidence; None: the config's.
            scope: only memories of this scope or of one within it. Without any there is no evidence, and a note.
            where: conditions on the memories, see `gemjax.memory.filters`.
            reference_date: the moment of the question: "today" in the prompt, and by which memories have expired. None:
                now.

        Raises: MemoryBankError for a bad question, scope, condition or date; ConfigError for a bad budget;
            EncoderError.
        """
        watch = Stopwatch()
        asked_at = read_time(reference_date, "reference_date") or self._clock()
        budget = self.config.budget if budget is None else budget
        check_count(budget, "budget")
        names = scope_of(scope)
        if not isinstance(question, str) or not question.strip():
            raise MemoryBankError(f"question must be a non-empty string, got {question!r:.40}")
        hits = []
        most, rerank = self.config.retrieve, self.config.rerank
        if len(self.bank) and rerank is not None:
            with watch.stage("search"):  # and the reading of what it finds
                named: dict[str, Any] = {"scope": names, "at": asked_at, "candidates": most}
                hits = self.bank.search(question, most, where, rerank=rerank, **named)
        elif len(self.bank):
            with watch.stage("encode"):
                vectors = self.bank.encode([question])
            with watch.stage("search"):
                hits = self.bank.search_batch([question], most, where, scope=names, at=asked_at, vectors=vectors)[0]
        parts: list[Evidence] = []
        retrieved = 0
        with watch.stage("distil"):
            ordered = in_order(hits, [self.bank.get(hit.id) for hit in hits])
            parts, retrieved = distilled(ordered, self.config.prompt, self.distiller, self._count, budget, question)
        support = support_of(hits)
        least = least_support(self.config.support, self.bank.encoder_name)
        return self._recollection(
            Recollection(
                question,
                "",
                tuple(parts),
                (),
                support,
                bool(hits) and (least is None or support >= least),
                self._note(hits, names, where),
                AskLedger(len(self.bank), len(hits), tokens_retrieved=retrieved, milliseconds=watch.milliseconds),
                asked_at,
            )
        )

    def _recollection(self, found: Recollection, cut: int = 0) -> Recollection:
        """Text, what is left out and the counts, from what the evidence has kept."""
        kept = tuple(part for part in found.evidence if part.kept)
        gone = {part.id: part for part in (*found.left_out, *found.evidence) if not part.kept}
        text = block(kept, self.config.prompt)
        ledger = dataclasses.replace(
            found.ledger,
            memories_kept=len(kept),
            memories_cut=cut,
            tokens_kept=self._count(text),
            peak_memory_bytes=peak_memory(),
        )
        left_out = tuple(sorted(gone.values(), key=lambda part: part.rank))
        return dataclasses.replace(found, text=text, evidence=kept, left_out=left_out, ledger=ledger)

    def _note(self, hits: Sequence[Any], scope: Scope, where: Where | None) -> str:
        if hits:
            return str(hits[0].note)
        if not len(self.bank):
            return "nothing is remembered yet"
        inside = f" in scope {'/'.join(scope)!r}" if scope else ""
        return f"no memory{inside} meets the conditions" if where is not None else f"there is no memory{inside}"

    # ---- answering -----------------------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        budget: int | None = None,
        *,
        scope: str | Sequence[str] = (),
        where: Where | None = None,
        reference_date: When | int | float = None,
        sampling: Sampling | None = None,
    ) -> Answer:
        """Answer a question from what is remembered.

        The generator is not asked where nothing supports an answer. A prompt beyond its context loses whole memories,
        the least relevant first, until it fits.

        Args:
            question, budget, scope, where, reference_date: see `recall`.
            sampling: instead of the config's.

        Raises: as `recall`; ConfigError without a generator; UnansweredError, a GenerationError that carries the
            evidence, when the generator fails or not even the question fits its context.
        """
        generator = self._generator()
        sampling = sampling or self.config.sampling
        found = self.recall(question, budget, scope=scope, where=where, reference_date=reference_date)
        if not found.supported:
            return self._abstention(found)
        watch = Stopwatch()
        with watch.stage("prompt"):
            found, messages = self._fitting(found, generator, sampling)
        try:
            with watch.stage("generate"):
                made = generator.generate(list(messages), sampling)
            if not isinstance(made, Generation):
                raise TypeError(f"the generator returned {type(made).__name__}, not a Generation")
        except Exception as error:
            raise UnansweredError(_why(error), _timed(found, watch), messages) from error
        return self._answer(found, watch, messages, made)

    def stream(
        self,
        question: str,
        budget: int | None = None,
        *,
        scope: str | Sequence[str] = (),
        where: Where | None = None,
        reference_date: When | int | float = None,
        sampling: Sampling | None = None,
    ) -> "AnswerStream":
        """`ask`, piece by piece: iterate over the result, then read its `answer`. Nothing is generated before that.

        Args, Raises: as `ask`; what the generator raises comes out of the iteration.
        """
        generator = self._generator()
        sampling = sampling or self.config.sampling
        found = self.recall(question, budget, scope=scope, where=where, reference_date=reference_date)
        if not found.supported:
            return AnswerStream(iter(()), self._abstention(found))
        watch = Stopwatch()
        with watch.stage("prompt"):
            found, messages = self._fitting(found, generator, sampling)
        stream = AnswerStream(iter(()), None, found)
        stream.pieces = self._streamed(stream, generator, sampling, found, watch, messages)
        return stream

    def _streamed(
        self,
        stream: "AnswerStream",
        generator: Generator,
        sampling: Sampling,
        found: Recollection,
        watch: Stopwatch,
        messages: tuple[ChatMessage, ...],
    ) -> Iterator[str]:
        said = ""
        with watch.stage("generate"):
            try:
                for piece in generator.stream(list(messages), sampling):
                    said += piece
                    yield piece
            except Exception as error:
                raise UnansweredError(_why(error), _timed(found, watch), messages, said) from error
        count = generator.count_tokens
        reply: ChatMessage = {"role": "assistant", "content": said}
        prompted = count(list(messages))
        made = Generation(said, "stop", prompted, max(count([*messages, reply]) - prompted, 0), 0.0, generator.model)
        stream.answer = dataclasses.replace(self._answer(found, watch, messages, made), finish_reason=None)

    def _generator(self) -> Generator:
        if self.generator is None:
            raise ConfigError("this memory has no generator to ask: CoreMem(..., generator=...); `recall` needs none")
        return self.generator

    def _fitting(
        self, found: Recollection, generator: Generator, sampling: Sampling
    ) -> tuple[Recollection, tuple[ChatMessage, ...]]:
        """The prompt, with as many of the most relevant memories as the generator's context has room for."""
        template, window = self.config.prompt, generator.context_window

        def prompt(parts: Sequence[Evidence]) -> list[ChatMessage]:
            return template.messages(block(parts, template), found.question, found.asked_at.date())

        def most(count: int) -> list[Evidence]:
            ranks = sorted(part.rank for part in found.evidence)[:count]
            return [part for part in found.evidence if part.rank in ranks]

        everything = prompt(found.evidence)
        if window is None:
            return found, tuple(everything)
        room = window - sampling.max_tokens
        try:
            if generator.count_tokens(everything) <= room:
                return found, tuple(everything)
            low, high = 0, len(found.evidence) - 1
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (
                    (middle, high) if generator.count_tokens(prompt(most(middle))) <= room else (low, middle - 1)
                )
        except Exception as error:
            raise UnansweredError(_why(error), found, tuple(everything)) from error
        kept = most(low)
        messages = tuple(prompt(kept))
        if not kept:
            raise UnansweredError(
                f"the question leaves no room for a memory in {generator.model}'s context of {window} tokens, of which "
                f"the answer may have {sampling.max_tokens}: shorten it, or lower max_tokens",
                found,
                messages,
            )
        ids = {part.id for part in kept}
        shown = tuple(p if p.id in ids else dataclasses.replace(p, kept="", spans=()) for p in found.evidence)
        cut = len(found.evidence) - len(kept)
        return self._recollection(dataclasses.replace(found, evidence=shown), cut), messages

    def _answer(
        self, found: Recollection, watch: Stopwatch, messages: tuple[ChatMessage, ...], made: Generation
    ) -> Answer:
        found = _timed(found, watch)
        ledger = dataclasses.replace(
            found.ledger,
            tokens_prompted=made.prompt_tokens,
            tokens_answered=made.completion_tokens,
            peak_memory_bytes=peak_memory(),
        )
        reason = {
            "length": "the answer is cut: raise max_tokens",
            "content_filter": "the endpoint withheld the answer",
        }.get(made.finish_reason, "")
        unknown = self.config.prompt.says_unknown(made.text)
        if not made.text.strip():
            reason = reason or "the model said nothing"
        elif unknown:
            reason = "the model finds no answer in the memories"
        return Answer(
            made.text, found.evidence, unknown, reason, made.finish_reason, made.model, messages, found, ledger
        )

    def _abstention(self, found: Recollection) -> Answer:
        reason = found.note if not found.evidence else "nothing that was recalled supports an answer"
        return Answer(self.config.unanswered, found.evidence, True, reason, None, "", (), found, found.ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Save to the directory, if there is one and nothing was raised."""
        if self.path is not None and error[0] is None:
            self.save()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _timed(found: Recollection, watch: Stopwatch) -> Recollection:
    spent = {**found.ledger.milliseconds, **watch.milliseconds}
    return dataclasses.replace(found, ledger=dataclasses.replace(found.ledger, milliseconds=spent))
