"""C.1, Fig. 3, Table 2 and Table E.1 against NumPy in float64 and counts by hand."""

import numpy as np
import pytest

from gemjax.evaluation.gem.composition import replayed, table_e1
from gemjax.evaluation.gem.replacement import swaps
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.spectra import action_bands, concentration, table_c1
from gemjax.evaluation.replay import EstimatedTokens, Prices, load, methods_named
from gemjax.evaluation.replay.tokens import count_message
from tests.conftest import HashingEncoder


def spectrum(x):
    _, s, vt = np.linalg.svd(x - x.mean(0), full_matrices=False)
    real = s > 1e-4
    return s[real], vt[real]


def test_concentration_is_the_entropy_of_the_centred_spectrum(collected):
    got = concentration([(t.id, t.vectors) for t in collected])
    for t, rank, share, cover in zip(collected, got["effective_rank"], got["r90_share"], got["cover"], strict=True):
        s, _ = spectrum(t.vectors.astype(float))
        p = s**2 / np.sum(s**2)
        assert rank[0] == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-3)
        assert share[0] == pytest.approx((np.searchsorted(np.cumsum(p), 0.9) + 1) / len(t.vectors))
        assert 1 <= cover <= len(t.vectors)
        # Gaussian rows of n blocks in d dimensions spread over nearly all of the min(n - 1, d) directions.
        assert rank[2] > 0.6 * min(len(t.vectors) - 1, t.vectors.shape[1])


def test_a_history_without_structure_is_no_lower_than_its_controls():
    rng = np.random.default_rng(0)
    flat = [(str(i), rng.standard_normal((30, 64)).astype(np.float32)) for i in range(20)]
    low = [(name, (rows[:, :3] @ rng.standard_normal((3, 64))).astype(np.float32)) for name, rows in flat]
    ranks = concentration(flat)["effective_rank"]
    assert abs(np.median(ranks[:, 0] - ranks[:, 1])) < 1
    ranks = concentration(low)["effective_rank"]
    assert (ranks[:, 0] < 0.5 * ranks[:, 1]).all()


def test_controls_are_drawn_by_name_and_not_by_place(collected):
    one = concentration([(t.id, t.vectors) for t in collected])
    other = concentration([(t.id, t.vectors) for t in collected[::-1]])
    np.testing.assert_allclose(one["effective_rank"], other["effective_rank"][::-1], rtol=1e-5)


def test_c1_counts_signs(collected):
    table = table_c1(Study(collected))[0]
    ranks = np.array(table.raw["effective_rank"])
    assert table.rows[1].cells[2].value == np.sum(ranks[:, 0] < ranks[:, 1])
    assert table.rows[0].cells[0].value == pytest.approx(np.median(ranks[:, 0]), abs=1e-6)


def test_bands_and_low_energy_of_the_next_action(collected):
    bands, low = action_bands(collected)
    at = 0
    for t in collected:
        for j, n in enumerate(t.counts):
            s, v = spectrum(t.vectors[:n].astype(float))
            squares = (v @ t.action[j]) ** 2
            expected = np.zeros(10)
            np.add.at(expected, np.arange(len(s)) * 10 // len(s), squares)
            np.testing.assert_allclose(bands[at], expected / squares.sum(), atol=5e-3)
            r90 = np.searchsorted(np.cumsum(s**2) / np.sum(s**2), 0.9) + 1
            assert low[at] == pytest.approx(squares[r90:].sum() / squares.sum(), abs=5e-3)
            at += 1


def test_swaps_are_their_twin(collected):
    t = collected[2]
    n = int(t.counts[-1])
    x = np.zeros((64, t.vectors.shape[1]), np.float32)
    x[: len(t.vectors)] = t.vectors
    chars = np.ones(64, np.float32)
    chars[: len(t.chars)] = t.chars
    core = np.zeros(64, bool)
    core[1:n:3] = True
    got = swaps(x, np.array([n]), t.action[-1:], core[None], chars)
    rows = t.vectors[:n].astype(float)
    s, v = spectrum(rows)
    lower = v[np.searchsorted(np.cumsum(s**2) / np.sum(s**2), 0.9) + 1 :]
    blocks, action = (rows - rows.mean(0)) @ lower.T, lower @ t.action[-1]
    score = blocks @ action / np.linalg.norm(blocks, axis=1) / np.linalg.norm(action)
    kept, out = np.flatnonzero(core[:n]), np.flatnonzero(~core[:n])
    target, incoming = kept[np.argmax(score[kept])], out[np.argmin(score[out])]
    mean = rows.sum(0) / np.linalg.norm(rows.sum(0))
    traits = np.stack([rows @ mean, np.arange(n) / (n - 1), np.log2(t.chars[:n])])[:, kept]
    units = (traits - traits[:, [list(kept).index(target)]]) / traits.std(axis=1, keepdims=True)
    allowed = (score[kept] <= np.median(score[kept])) & (kept != target)
    control = kept[np.argmin(np.where(allowed, np.sum(units**2, axis=0), np.inf))]
    np.testing.assert_array_equal(np.asarray(got["blocks"])[0], [target, control, incoming])
    share = np.sum(blocks**2, axis=1) / np.sum(((rows - rows.mean(0)) @ v.T) ** 2, axis=1)
    np.testing.assert_allclose(np.asarray(got["low_energy"])[0], share[[target, control, incoming]], atol=1e-4)
    targeted = set(np.flatnonzero(np.asarray(got["targeted"])[0]))
    assert targeted == (set(kept) | {incoming}) - {target}
    assert np.asarray(got["matched"])[0].sum() == len(kept)


def test_nothing_outside_the_core_is_no_pair(collected):
    t = collected[0]
    full = np.ones((1, 32), bool)
    x = np.zeros((32, t.vectors.shape[1]), np.float32)
    x[: len(t.vectors)] = t.vectors
    assert not swaps(x, t.counts[:1], t.action[:1], full, np.ones(32, np.float32))["defined"][0]


def test_token_composition_adds_up(runs):
    trajectories = load(runs).trajectories
    counter = EstimatedTokens()
    report = replayed(trajectories, HashingEncoder(), counter, methods_named(["none", "keep-last-16"], Prices()))
    table = table_e1(report)[0]
    tokens = table.raw["tokens"]
    for name in ("none", "keep-last-16"):
        row = {key: np.array(v) for key, v in tokens[name].items()}
        np.testing.assert_allclose(row["cached"] + row["uncached"], row["input"])
        np.testing.assert_allclose(row["input"] + row["encoder"], row["combined"])
    for t, uncached in zip(trajectories, tokens["none"]["uncached"], strict=True):
        # A request only adds to the one before, so everything but the answers after the last request is new once.
        sent = [m for m in t.messages if t.messages.index(m) < len(t.messages) - 2]
        frame = count_message(counter, t.request_template)
        assert uncached == pytest.approx(frame + sum(count_message(counter, m) for m in sent))
    assert table.rows[0].cells[-1].value == 1


def test_one_trajectory_has_a_mean_and_no_interval():
    from gemjax.evaluation.gem.table import by_trajectory, pooled

    values = np.array([1.0, 2.0, 6.0])
    for cell in (pooled(values, np.zeros(3, int)), by_trajectory(values, np.zeros(3, int))):
        assert (cell.value, cell.low, cell.high, cell.interval()) == (3.0, None, None, "")
    assert pooled(values, np.array([0, 0, 1])).interval() != ""
