"""Coverage: the order of sentences when nobody asks anything."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.distill.coverage import coverage

NAMES = ["amber", "birch", "cobalt", "dune", "ember", "fjord"]
SENTENCES = st.lists(st.lists(st.sampled_from(NAMES), max_size=4).map(" ".join), max_size=9)


def chosen_in_order(sentences, costs, ties):
    """Greedily, all sums made anew for every choice."""
    held = [set(sentence.split()) for sentence in sentences]
    n = len(held)
    weight = {name: math.log(1 + (n - m + 0.5) / (m + 0.5)) for name in NAMES if (m := sum(name in h for h in held))}
    said, order = set(), []
    while len(order) < n:
        left = [i for i in range(n) if i not in order]
        gains = {i: math.fsum(weight[w] for w in held[i] - said) / costs[i] for i in left}
        best = max(gains.values())
        # Rounding must not decide between what is worth the same.
        equal = [i for i in left if math.isclose(gains[i], best, rel_tol=1e-12, abs_tol=1e-15)]
        order.append(max(equal, key=lambda i: (ties[i], -i)))
        said |= held[order[-1]]
    return order


@settings(max_examples=200, deadline=None)
@given(sentences=SENTENCES, seed=st.integers(0, 99))
def test_the_order_is_the_greedy_one(sentences, seed):
    rng = np.random.default_rng(seed)
    # Costs without common ratios, so that sums of weights tie only where the words are the same.
    costs = rng.choice([3, 5, 7, 11], len(sentences)).astype(int)
    ties = rng.choice([0.0, 1.0], len(sentences))
    worth = coverage(sentences, costs, ties)
    assert list(np.argsort(-worth)) == chosen_in_order(sentences, costs, ties)
    assert len(set(worth)) == len(sentences)


def test_what_is_said_already_comes_last():
    sentences = ["Ann paints in Oslo.", "In Oslo Ann paints.", "Ben sells a boat.", "Thanks!"]
    worth = coverage(sentences, np.array([5, 5, 5, 5]), np.zeros(4))
    assert list(np.argsort(-worth)) == [2, 0, 3, 1]


def test_a_word_in_every_sentence_still_weighs_something():
    assert list(np.argsort(-coverage(["", "oslo", "oslo"], np.array([1, 1, 1]), np.zeros(3)))) == [1, 0, 2]


def test_ties_that_are_no_numbers_end_too():
    sentences = ["oslo", "oslo", "bergen"]
    worth = coverage(sentences, np.array([1, 1, 1]), np.full(3, np.nan))
    assert sorted(worth) == [-2, -1, 0] and worth[2] == 0


def test_without_spaces_pairs_of_characters_are_the_words():
    worth = coverage(["你好", "你好", "山里下雪"], np.array([2, 2, 4]), np.zeros(3))
    assert worth[1] < min(worth[0], worth[2])


def test_long_texts_take_no_quadratic_time():
    """Ten thousand sentences: the lazy queue looks at few of them again; all of them each time would be 5e7 sums."""
    rng = np.random.default_rng(0)
    sentences = [" ".join(f"w{i}" for i in rng.zipf(1.3, 12) % 5000) for _ in range(10_000)]
    asked = []

    class Costs(np.ndarray):
        def __getitem__(self, key):
            asked.append(key)
            return super().__getitem__(key)

    coverage(sentences, np.full(10_000, 9).view(Costs), np.zeros(10_000))
    assert len(asked) < 40 * len(sentences)
