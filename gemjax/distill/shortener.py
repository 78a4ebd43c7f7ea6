"""Text in, the part of it that fits a budget out: the one engine under both façades and all their variants."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from gemjax.distill.bonds import Bonds, bonds_of, sentence_texts
from gemjax.distill.coverage import coverage
from gemjax.distill.outcome import check_budget, finish, whole
from gemjax.distill.recipe import Recipe
from gemjax.distill.relevance import fused_relevance
from gemjax.distill.render import kept_spans, render
from gemjax.distill.result import Distillation
from gemjax.distill.scoring import ScoreCache, Scored, score_turns, unscored
from gemjax.distill.selection import UnitPlan, best_set, plan, take
from gemjax.distill.turns import ReadTurn, TokenReader, Turns, as_turns, read_turns
from gemjax.distill.units import Units, is_unspaced, units_of
from gemjax.errors import ConfigError
from gemjax.kernels.tokens import Fit
from gemjax.models.language import LanguageModel

Progress = Callable[[int], None]


class Compressor(Protocol):
    """Anything that shortens turns to a budget: the façades and what they are compared with."""

    name: str

    def distill(self, turns: Turns, budget: int, query: str | None = None) -> Distillation:
        """The turns within `budget` tokens."""
        ...


class TextShortener:
    """Any recipe, as it is.

    Args:
        recipe: every part of the method.
        tokenizer: counts; of the model, where there is one.
        model: gives sensitivities or surprisals. None: `recipe.loss` must be "none".
        encoder: scores turns against the query when they carry no scores of their own (`gemjax.as_encoder` takes what
            it may be); None: the default encoder, loaded when it is first needed.
        name: how reports call it.

    Raises:
        ConfigError: a recipe with a loss and no model.
    """

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: TokenReader,
        model: LanguageModel | None = None,
        *,
        encoder: Any = None,
        name: str = "shortener",
    ) -> None:
        if model is None and recipe.loss != "none":
            raise ConfigError(f'loss = {recipe.loss!r} needs a language model; without one it is "none"')
        self.recipe, self.tokenizer, self.name = recipe, tokenizer, name
        self.model = None if recipe.loss == "none" else model
        self.cache = ScoreCache()
        self._encoder = encoder

    def distill(
        self, turns: Turns, budget: int, query: str | None = None, *, progress: Progress | None = None
    ) -> Distillation:
        """The most telling part of the turns within a budget.

        A text within the budget comes back as it is, without a model pass. The result never has more than `budget`
        tokens, counted by tokenising it; it is empty when not even the smallest unit fits.

        Args:
            turns: a text, texts or `Turn`s, oldest first.
            budget: the most tokens of the model's tokenizer, at least 1.
            query: what the text will be asked. Turns without scores are scored by their similarity to it.
                With neither, the sentences come first that say most that is not said yet.
            progress: called with the number of tokens that the model has read since the last call.

        Raises:
            ConfigError: the budget is below 1 or no integer.
            TypeError: the turns are neither strings nor `Turn`s, or the query is no string.
        """
        check_budget(budget)
        if query is not None and not isinstance(query, str):
            raise TypeError(f"query must be a string or None, got {type(query).__name__}")
        listed = as_turns(turns)
        read = read_turns(listed, self.tokenizer)
        text = "\n".join(turn.text for turn in listed)
        before = self.tokenizer.count(text)
        units = units_of(read, self.recipe.unit)
        if before <= budget or not text.strip():
            return whole(read, units, text, before, budget, self.tokenizer, self.name)
        # Before the model reads: an encoder that cannot be loaded should fail at once.
        relevance = self._relevance(read, query)
        scored = self._score(read, query, progress)
        bonds = bonds_of(read, self.recipe.unit)
        planned, demoted = self._plan(units, scored, read, bonds)
        kept = self._choose(units, planned, demoted, bonds, relevance, read, budget)
        return finish(
            read,
            units,
            kept,
            before,
            budget,
            self.tokenizer,
            model=self.model,
            scored=scored,
            planned=planned,
            name=self.name,
        )

    def _score(self, read: list[ReadTurn], query: str | None, progress: Progress | None) -> Scored:
        if self.model is None:
            return unscored(sum(len(turn.tokens.ids) for turn in read))
        return score_turns(read, self.model, self.recipe, query, progress, self.cache)

    def _plan(self, units: Units, scored: Scored, read: list[ReadTurn], bonds: Bonds) -> tuple[UnitPlan, np.ndarray]:
        texts = [read[t].turn.text[a:b] for t, a, b in zip(units.turn, units.start, units.stop, strict=True)]
        scores = units.mean(scored.scores)
        if self.recipe.multipliers is not None:
            scores = scores * self.recipe.multipliers.factors(texts)
        spared = np.zeros(len(units), bool)
        demoted = np.zeros(sum(len(turn.spans) for turn in read), bool)
        filler = self.recipe.filler
        if filler is not None:
            opens = np.append(True, np.diff(units.turn) > 0)
            spared = np.array([filler.word(text) for text in texts], bool) & ~opens & ~units.header
            demoted = np.array([filler.sentence(sentence) for sentence in sentence_texts(read)], bool)
            # Filler words in a sentence that is taken last stay: there is nothing else in it.
            spared &= ~demoted[units.sentence]
            # "not just", "not very well": without the filler it would be another claim.
            spared &= ~bonds.whole[units.sentence]
        fixed = bonds.whole[units.sentence]
        if self.recipe.headers:
            fixed = fixed | units.header
        return plan(units, scores, spared, fixed, len(read), self.recipe), demoted

    def _relevance(self, read: list[ReadTurn], query: str | None) -> np.ndarray | None:
        """How well each sentence's turn (of a single turn: the sentence itself) matches the query; None: unknown."""
        if self.recipe.value == "mean":
            return None
        recipe = self.recipe
        owner = np.repeat(np.arange(len(read)), [len(turn.spans) for turn in read])
        texts = [turn.turn.text for turn in read]
        scores = [turn.turn.score for turn in read]
        # Punctuation and emoji alone ask nothing.
        asked = query is not None and any(map(str.isalnum, query))
        if any(score is not None for score in scores):
            known = np.array([math.nan if score is None else score for score in scores])
        elif asked:
            from gemjax.encoders import as_encoder

            self._encoder = as_encoder(self._encoder)
            if len(read) == 1:
                owner = np.arange(len(read[0].spans))
                texts = [texts[0][a:b] for a, b in read[0].spans]
            vectors = self._encoder.encode([query, *texts])
            known = np.asarray(vectors[1:] @ vectors[0], float)
        else:
            return None
        return fused_relevance(known, texts, query, lexical=recipe.lexical, neighbours=recipe.neighbours)[owner]

    def _choose(
        self,
        units: Units,
        planned: UnitPlan,
        demoted: np.ndarray,
        bonds: Bonds,
        relevance: np.ndarray | None,
        read: list[ReadTurn],
        budget: int,
    ) -> np.ndarray:
        recipe = self.recipe
        fixed = units.header if recipe.headers else np.zeros(len(units), bool)
        body = planned.kept & ~fixed
        sentences = len(planned.means)
        costs = np.bincount(units.sentence, np.where(body, units.cost, 0), sentences).astype(int)
        owner = np.zeros(sentences, int)
        owner[units.sentence] = units.turn
        # A line end in front of every turn but the first that is kept; counted for all, settled by the recount.
        opening = 1 + np.bincount(units.turn, np.where(fixed, units.cost, 0), len(read)).astype(int)
        worth = self._worth(planned, relevance, costs, owner, opening, budget, read)
        # Sentences whose every unit is left out, or that hold only a header, are not in the queue.
        queue = np.lexsort((np.arange(sentences), -worth, demoted))
        queue = queue[costs[queue] > 0]
        queue, chosen = self._taken(queue, costs, owner, opening, bonds.whole, budget + 1)
        turns = [turn.turn for turn in read]

        def mask(count: int) -> np.ndarray:
            named = bonds.with_needs(chosen[:count])
            inside = np.isin(units.sentence, named)
            kept: np.ndarray = (body & inside) | (fixed & np.isin(units.turn, owner[named]))
            return kept

        def fits(kept: np.ndarray) -> bool:
            return self.tokenizer.count(render(kept_spans(units, kept, turns), turns)) <= budget

        while chosen and not fits(mask(len(chosen))):
            chosen.pop()
        kept = mask(len(chosen))
        if len(chosen) == len(queue):
            # Everything of worth is in: what pruning took comes back, best first.
            present = np.zeros(sentences, bool)
            present[bonds.with_needs(chosen)] = True
            left = np.flatnonzero(~kept & (present | ~bonds.whole)[units.sentence])
            return self._longest(kept, left[np.lexsort((left, -planned.scores[left]))], fits)
        following = queue[len(chosen)]
        if recipe.fit != "trim" or bonds.whole[following]:
            return kept
        # The best part of the sentence that does not fit: its header, then protected units before the others.
        own = np.flatnonzero(body & (units.sentence == following))
        own, says = self._trimmed(own, units, planned, read)
        header = np.flatnonzero(fixed & (units.turn == owner[following]) & ~kept)
        more = self._longest(kept, np.concatenate([header, own]), fits)
        # A header or a full stop alone says nothing.
        return more if (more & ~kept)[own[says]].any() else kept

    def _taken(
        self,
        queue: np.ndarray,
        costs: np.ndarray,
        owner: np.ndarray,
        opening: np.ndarray,
        whole: np.ndarray,
        budget: int,
    ) -> tuple[np.ndarray, list[int]]:
        """The queue, and the sentences at its front that fit.

        Under "trim" a sentence that is taken whole or not at all and does not fit leaves the queue: those after it may
        still fit. The first one that may be picked from ends the walk, as every sentence does under "prefix".
        """
        fit: Fit = "skip" if self.recipe.fit == "skip" else "prefix"
        while True:
            values = -np.arange(len(queue), dtype=float)
            taken = take(values, costs[queue], owner[queue], opening, budget, fit)
            chosen = [int(queue[i]) for i in taken]
            if self.recipe.fit != "trim" or len(chosen) == len(queue) or not whole[queue[len(chosen)]]:
                return queue, chosen
            room = budget - int(costs[chosen].sum() + opening[np.unique(owner[chosen])].sum())
            later = np.arange(len(queue)) >= len(chosen)
            stays = ~(later & whole[queue] & (costs[queue] > room))
            # What fits but for its turn's opening leaves the queue by itself.
            stays[len(chosen)] = False
            queue = queue[stays]

    def _trimmed(
        self, own: np.ndarray, units: Units, planned: UnitPlan, read: list[ReadTurn]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The order in which units of a sentence that does not fit whole go in, and which of them say something.

        Protected ones first, then words before punctuation, by score. In a script that does not separate words units
        are single characters, and a choice of them reads as other words: there the sentence is cut off.
        """
        pieces = [
            read[t].turn.text[a:b] for t, a, b in zip(units.turn[own], units.start[own], units.stop[own], strict=True)
        ]
        says = np.array([any(map(str.isalnum, piece)) for piece in pieces], bool)
        if any(map(is_unspaced, pieces)):
            return own, says
        order = np.lexsort((own, -planned.scores[own], ~says, ~planned.protected[own]))
        return own[order], says[order]

    def _longest(self, kept: np.ndarray, order: np.ndarray, fits: Callable[[np.ndarray], bool]) -> np.ndarray:
        """Add units in this order as long as the text fits: by bisection, then settled by going back."""

        def grown(count: int) -> np.ndarray:
            more = kept.copy()
            more[order[:count]] = True
            return more

        low, high = 0, len(order)
        while low < high:
            middle = math.ceil((low + high) / 2)
            if fits(grown(middle)):
                low = middle
            else:
                high = middle - 1
        return grown(low)

    def _worth(
        self,
        planned: UnitPlan,
        relevance: np.ndarray | None,
        costs: np.ndarray,
        owner: np.ndarray,
        opening: np.ndarray,
        budget: int,
        read: list[ReadTurn],
    ) -> np.ndarray:
        kind = self.recipe.value
        if kind == "turn":
            if relevance is None:
                return coverage(sentence_texts(read), costs + opening[owner], planned.means)
            return relevance
        if relevance is None and kind != "knapsack":
            return planned.means
        scaled = np.ones(len(costs))
        if relevance is not None and len(costs):
            spread = np.ptp(relevance)
            scaled = (relevance - relevance.min()) / spread if spread else scaled
        product: np.ndarray = scaled * planned.means
        if kind == "product":
            return product
        # A turn's opening is shared out among its sentences: the table knows no openings.
        shared = costs + np.ceil(opening[owner] / np.maximum(np.bincount(owner)[owner], 1)).astype(int)
        chosen = best_set(np.where(costs > 0, product * costs, 0.0), shared, budget)
        ranked: np.ndarray = product + np.where(chosen, product.max(initial=0.0) + 1.0, 0.0)
        return ranked
