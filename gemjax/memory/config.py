"""Settings of a memory bank."""

import dataclasses
from typing import Any, Self

import numpy as np

from gemjax.errors import ConfigError

MODELS = ("paper", "isotropic", "diagonal")
FORMS = ("similarity", "distance", "cosine")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How memories are scored. The defaults are the paper's (`MemoryConfig.paper()`); `MemoryConfig.tuned()` found
    more on LoCoMo.

    Args:
        alpha: weight of the cosine in the fused score (Eq. 2): 0 is purely Riemannian, 1 purely cosine.
        ridge: lambda as a multiple of the mean variance.
        energy: share of the centred energy in the low-rank part, in (0, 1].
        model: covariance model: `"paper"` (low rank + diagonal), `"isotropic"` (low rank + lambda I) or `"diagonal"`.
        form: what the Riemannian score is: `"similarity"` (the paper), `"distance"` or `"cosine"`.
        dtype: storage of the vectors; `"bfloat16"` halves memory, and products still accumulate in float32.
        min_memories: with fewer memories than this no covariance is worth fitting: cosine only, and the hit says so.
        lexical: weight of the words (BM25) beside the meaning, both standardised; 0: none.
        neighbours: in a session, share of the better neighbouring turn's positive score that a turn gets.
        session: share of the positive score of its session's best turn that a turn gets.
        speaker: deviations added to the turns of the one speaker whom the query names (`Ann: ...`).
        when: deviations added to memories that happened when the query says ("last May", "in 2022"; English).
        forgetting: days after which a memory has faded to 1/e: its retention exp(-age / forgetting), the curve of
            Ebbinghaus as MemoryBank takes it for a memory that was never recalled, is added in deviations. The age is
            from `happened_at`, else from when the bank took it in. 0: nothing fades.
        auto_refit: refit before a search when the moments changed. When False, only `refit()` does.

    Raises: ConfigError when a value is out of range.
    """

    alpha: float = 0.5
    ridge: float = 10.0
    energy: float = 0.95
    model: str = "paper"
    form: str = "similarity"
    dtype: str = "float32"
    min_memories: int = 8
    auto_refit: bool = True
    lexical: float = 0.0
    neighbours: float = 0.0
    session: float = 0.0
    speaker: float = 0.0
    when: float = 0.0
    forgetting: float = 0.0

    @property
    def ranking(self) -> str:
        """What ranks when a search does not say: `"hybrid"` once any of the weights beside the meaning is set."""
        return (
            "hybrid"
            if any((self.lexical, self.neighbours, self.session, self.speaker, self.when, self.forgetting))
            else "fused"
        )

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("model", self.model, MODELS),
            ("form", self.form, FORMS),
            ("dtype", self.dtype, DTYPES),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        for name in ("alpha", "ridge", "energy", "lexical", "neighbours", "session", "speaker", "when", "forgetting"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise ConfigError(f"{name} must be a finite number, got {value!r:.40}")
        if type(self.min_memories) is not int:
            raise ConfigError(f"min_memories must be an integer, got {self.min_memories!r:.40}")
        if type(self.auto_refit) is not bool:
            raise ConfigError(f"auto_refit must be True or False, got {self.auto_refit!r:.40}")
        check_alpha(self.alpha)
        if not 0 <= self.ridge <= 1e30:
            raise ConfigError(f"ridge must be a finite number from 0 to 1e30, got {self.ridge!r:.40}")
        for name in ("lexical", "neighbours", "session", "speaker", "when"):
            if not 0 <= getattr(self, name) <= 100:
                raise ConfigError(f"{name} must lie in [0, 100], got {getattr(self, name)!r:.40}")
        if not 0 <= self.forgetting <= 1e6:
            raise ConfigError(f"forgetting must be a number of days in [0, 1e6], got {self.forgetting!r:.40}")
        if not 0 < self.energy <= 1:
            raise ConfigError(f"energy must lie in (0, 1], got {self.energy!r}")
        if self.min_memories < 2:
            raise ConfigError(f"min_memories must be at least 2, got {self.min_memories!r}")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """CoreMem-Fusion: alpha 0.5, ridge 10, energy 0.95."""
        return cls(**changes)

    @classmethod
    def tuned(cls, **changes: Any) -> Self:
        """The best of a search over ridge, energy, alpha and covariance model, cross-validated over conversations of
        LoCoMo with all-MiniLM-L6-v2 (docs/locomo.md): a shrunk covariance whose weak directions share one variance."""
        return cls(**{"model": "isotropic", "ridge": 2.0, "energy": 0.8, "alpha": 0.5, **changes})

    @classmethod
    def hybrid(cls, **changes: Any) -> Self:
        """`tuned()` joined with the words, the neighbours, the session and the time of a turn: chosen by
        cross-validation over conversations and over kinds of data (docs/locomo.md)."""
        joined = {"alpha": 0.7, "lexical": 0.5, "neighbours": 0.3, "session": 0.15, "speaker": 0.5, "when": 2.0}
        return cls.tuned(**{**joined, **changes})


def check_alpha(alpha: float) -> None:
    """Raise ConfigError unless 0 <= alpha <= 1 (NaN fails too)."""
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie in [0, 1] (0 = Riemannian, 1 = cosine), got {alpha!r}")
