r"""Table 2: what replacing one retained block does to action evidence and to geometry (4.3, C.3).

The base is the core of the paper's rules. **Targeted**: the retained block of the largest alignment $A_i$ (C.4) goes.
**Matched**: of the retained blocks whose alignment is at most the median of the retained ones, the one goes that is
nearest to the targeted block in similarity to the history's mean, recency and log length, each in units of its standard
deviation over the retained blocks. **Both** take the same block in its place, the one outside the core of the lowest
alignment: so the two conditions differ in nothing but what went. The paper does not say what comes in.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gemjax.evaluation.gem.batches import batches
from gemjax.evaluation.gem.checkpoints import UNRANKED
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import CAPACITY, TAU, completions, measures, ranks_for
from gemjax.evaluation.gem.table import (
    PAIRED_COLUMNS,
    Row,
    Table,
    by_trajectory,
    jsonable,
    paired_rows,
    trajectory_means,
)
from gemjax.kernels.retention import action_alignment, block_low_energy
from gemjax.kernels.spectrum import centered_spectrum
from gemjax.wording import counted

EFFECTS = ("P_a", "T3", "C", "E")
MATCHED_ON = ("similarity to the mean", "recency", "log2 characters")


@jax.jit
def swaps(x: Any, n: Any, action: Any, core: Any, chars: Any) -> dict[str, Array]:
    """Both conditions of one matrix and its checkpoints: masks `[C, N]`, chosen blocks, and how well they match.

    `x` `[N, d]`, `n` `[C]`, `action` `[C, d]`, `core` `[C, N]`, `chars` `[N]`. `defined` is False where no pair exists.
    """
    rows = jnp.arange(x.shape[0])

    def one(item: tuple[Array, Array, Array]) -> dict[str, Array]:
        n, action, core = item
        valid = rows < n
        core = core & valid
        spectrum = centered_spectrum(jnp.where(valid[:, None], x, 0), valid)
        aligned = action_alignment(x, action, spectrum, valid=valid)
        score = aligned.value
        open_ = core & aligned.defined
        target = jnp.argmax(jnp.where(open_, score, -jnp.inf))
        middle = jnp.nanmedian(jnp.where(open_, score, jnp.nan))
        mean = jnp.sum(jnp.where(valid[:, None], x, 0), axis=0)
        similarity = x @ mean / jnp.maximum(jnp.sqrt(jnp.sum(mean**2)), 1e-12)
        traits = jnp.stack([similarity, rows / jnp.maximum(n - 1, 1), jnp.log2(jnp.maximum(chars, 1))])
        weight = core / jnp.maximum(jnp.sum(core), 1)
        centre = jnp.sum(traits * weight, axis=1, keepdims=True)
        spread = jnp.sqrt(jnp.sum((traits - centre) ** 2 * weight, axis=1, keepdims=True))
        units = jnp.where(spread > 0, (traits - traits[:, [target]]) / jnp.where(spread > 0, spread, 1), 0)
        low = open_ & (score <= middle) & (rows != target)
        control = jnp.argmin(jnp.where(low, jnp.sum(units**2, axis=0), jnp.inf))
        outside = valid & ~core & aligned.defined
        incoming = jnp.argmin(jnp.where(outside, score, jnp.inf))
        blocks = jnp.stack([target, control, incoming])
        inside = core | (rows == incoming)
        return {
            "targeted": inside & (rows != target),
            "matched": inside & (rows != control),
            "defined": jnp.any(open_) & jnp.any(low) & jnp.any(outside),
            "blocks": blocks,
            "alignment": score[blocks],
            "low_energy": block_low_energy(x, spectrum, valid=valid).value[blocks],
            "gap": units[:, control],
            "cosine": x[target] @ x[control],
        }

    out: dict[str, Array] = jax.lax.map(one, (n, action, core))
    return out


def table_2(study: Study) -> list[Table]:
    """Targeted replacement against the matched control (Table 2, C.3)."""
    most = max(int(np.maximum(CAPACITY, (p < UNRANKED).sum(axis=1)).max()) for p in study.paper)
    size = len(study.groups)
    conditions = ("base", "targeted", "matched")
    values = {c: {m: np.full(size, np.nan) for m in EFFECTS} for c in conditions}
    extra = {
        "gap": np.full((size, 3), np.nan),
        "alignment": np.full((size, 3), np.nan),
        "low_energy": np.full((size, 3), np.nan),
        "cosine": np.full(size, np.nan),
    }
    blocks = np.full((size, 3), -1)
    protected = [p < UNRANKED for p in study.paper]
    capacity = [np.maximum(CAPACITY, p.sum(axis=1)).astype(np.int32) for p in protected]
    for batch in batches(study.trajectories):
        rank = min(ranks_for(most), batch.x.shape[1])
        masks, room = batch.masks(protected)[:, None], batch.spread(capacity)[:, None]
        core = np.asarray(completions(batch.x, batch.n, masks, room, np.array([TAU], np.float32), max_rank=rank))[:, 0]
        chars = np.zeros(batch.x.shape[:2], np.float32)
        for row, (t, _, _) in zip(chars, batch.parts, strict=False):
            row[: min(len(row), len(study.trajectories[t].chars))] = study.trajectories[t].chars[: len(row)]
        made = [
            {k: np.asarray(v) for k, v in swaps(x, np.maximum(n, 1), a, c, length).items()}
            for x, n, a, c, length in zip(batch.x, batch.n, batch.action, core, chars, strict=True)
        ]
        stacked = {key: np.stack([m[key] for m in made]) for key in made[0]}
        chosen = np.stack([core, stacked["targeted"], stacked["matched"]], axis=1)
        whole = np.ones((*batch.n.shape, 3), np.float32)
        got = measures(
            batch.x, batch.n, chosen, batch.action, batch.goal, batch.final, whole, max_rank=min(rank, batch.x.shape[1])
        )
        real = (batch.places >= 0) & stacked["defined"]
        at = batch.places[real]
        for m in EFFECTS:
            for c, row in zip(conditions, np.asarray(got[m]).transpose(1, 0, 2)[:, real], strict=True):
                values[c][m][at] = row
        for key, flat in extra.items():
            flat[at] = stacked[key][real]
        blocks[at] = stacked["blocks"][real]
    changes = {c: {m: values[c][m] - values["base"][m] for m in EFFECTS} for c in ("targeted", "matched")}
    paper = {"P_a": -0.03, "T3": -0.33, "C": 0.0, "E": 0.0}
    groups = study.groups
    rows = [
        Row("base core", tuple(by_trajectory(values["base"][m], groups) for m in EFFECTS)),
        *(Row(f"{c}: change", tuple(by_trajectory(changes[c][m], groups) for m in EFFECTS)) for c in changes),
        Row(
            "targeted - matched",
            tuple(by_trajectory(changes["targeted"][m] - changes["matched"][m], groups, paper[m]) for m in EFFECTS),
        ),
    ]
    where = np.isfinite(values["base"]["C"])
    match = [
        Row(name, (by_trajectory(extra["gap"][:, i], groups), by_trajectory(np.abs(extra["gap"][:, i]), groups)))
        for i, name in enumerate(MATCHED_ON)
    ]
    match += [
        Row("cosine of the two blocks", (by_trajectory(extra["cosine"], groups),) * 2),
        Row("alignment, targeted", (by_trajectory(extra["alignment"][:, 0], groups),) * 2),
        Row("alignment, matched", (by_trajectory(extra["alignment"][:, 1], groups),) * 2),
        Row("alignment, incoming", (by_trajectory(extra["alignment"][:, 2], groups),) * 2),
        *(
            Row(f"low-energy share, {which}", (by_trajectory(extra["low_energy"][:, i], groups),) * 2)
            for i, which in enumerate(("targeted", "matched", "incoming"))
        ),
    ]
    pairs = {
        f"{m}: targeted - matched": trajectory_means(changes["targeted"][m] - changes["matched"][m], groups)
        for m in EFFECTS
    }
    left = int(size - where.sum())
    definition = "A_i: C.4, rho = 0.90; changes are against the core of the paper's rules. P_a, T3: Eq. 4; C, E: Eq. 3."
    return [
        Table(
            "2",
            "Replacing one retained block",
            definition,
            "condition",
            EFFECTS,
            tuple(rows),
            study.n(where),
            "number of checkpoints not in the text; targeted - matched",
            (
                "Both conditions take in the same block, the least aligned one outside the core; the paper names none.",
                f"Left out: {counted(left, 'checkpoint')} without a pair (all retained, or no alignment defined).",
            ),
            jsonable({"trajectory": groups, "blocks": blocks, "values": values, **extra}),
        ),
        Table(
            "2-match",
            "How well the matched block matches",
            "Matched minus targeted block, in standard deviations over the retained blocks; alignment is A_i (C.4), "
            "the low-energy share L_i (C.3).",
            "trait",
            ("mean", "mean size"),
            tuple(match),
            study.n(where),
        ),
        Table(
            "2-tests",
            "Targeted against matched replacement",
            "One difference a trajectory; each column of p values is corrected by Holm.",
            "effect",
            PAIRED_COLUMNS,
            paired_rows(pairs),
            counted(int(np.sum(np.isfinite(pairs["T3: targeted - matched"]))), "trajectory", "trajectories"),
        ),
    ]
