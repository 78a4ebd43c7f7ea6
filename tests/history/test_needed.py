"""The hazard rule: its probabilities against a reading of their definition, its choice against the inequality."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import ConfigError
from gemjax.history.evidence import EvidenceView, Recent, apply_rules
from gemjax.history.needed import HORIZON, Needed, probabilities
from gemjax.history.records import Block, BlockContent, ToolCall, ToolResult
from gemjax.history.signals import signals

NAMES = ["alpha_1", "beta_2", "gamma_3", "delta_4", "src/a.py", "src/b.py"]


def _view(said: list[tuple[list[str], list[str], int]]) -> EvidenceView:
    contents = [
        BlockContent(
            "", "", (ToolCall("c", "read", '{"path": "' + " ".join(a) + '"}'),), (ToolResult("c", " ".join(b)),)
        )
        for a, b, _ in said
    ]
    blocks = [Block(i, (2 * i, 2 * i + 1), str(i), said[i][2], c) for i, c in enumerate(contents)]
    return EvidenceView(blocks=blocks, signals=[signals(c) for c in contents], goal="", latest=contents[-1])


SAID = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=1),
        st.lists(st.sampled_from(NAMES), max_size=4),
        st.integers(50, 20_000),
    ),
    min_size=1,
    max_size=12,
)


@given(SAID)
@settings(max_examples=60, deadline=None)
def test_probabilities_are_the_logistic_of_their_features(said: list[tuple[list[str], list[str], int]]) -> None:
    view = _view(said)
    got = probabilities(view)
    everything = [set(a) | set(b) for a, b, _ in said]
    calls = set().union(*(set(a) for a, _, _ in said))
    for i in range(len(said)):
        own = everything[i] - set().union(*everything[i + 1 :])
        sources = view.signals[i].sources
        later = {s for found in view.signals[i + 1 :] for s in found.sources}
        again = sum(s in later for s in sources) / len(sources) if sources else 0.0
        score = -1.156 - 0.571 * math.log2(len(said) - i) + 0.333 * math.log2(1 + len(own))
        score += 0.228 * math.log2(1 + len(own & calls)) - 0.49 * again
        assert got[i] == pytest.approx(1 / (1 + math.exp(-score)))


@given(SAID, st.sampled_from([0.3, 1.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_a_block_stays_while_looking_it_up_costs_more(
    said: list[tuple[list[str], list[str], int]], thrift: float
) -> None:
    view = _view(said)
    named = Needed(thrift)(view)
    chance = probabilities(view)
    whole = sum(c for _, _, c in said)
    for i, (_, _, chars) in enumerate(said):
        lookup = chance[i] * (0.1 * whole / 2 + 1.25 * chars + 2_000)
        assert (i in named) == (lookup >= thrift * 0.1 * chars * HORIZON)
    assert set(Needed(2 * thrift)(view)) <= set(named)
    assert all(reason.isprintable() for reason in named.values())


def test_it_stands_beside_other_rules_and_asks_for_no_encoder() -> None:
    view = _view([(["alpha_1"], ["beta_2"], 100)] * 3)
    found = apply_rules((Recent(1), Needed()), view)
    assert set(found) == {"recent", "needed"} and Needed.queries == ()
    assert np.all(probabilities(view) < 1)


@pytest.mark.parametrize("bad", [{"thrift": 0}, {"thrift": "1"}, {"read": -1}, {"write": math.inf}, {"name": ""}])
def test_bad_settings(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Needed(**bad)  # type: ignore[arg-type]
