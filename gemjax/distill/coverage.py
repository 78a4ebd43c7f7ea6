"""What to keep of a text that nobody has asked anything yet: the sentences that say most that is not said already."""

import heapq
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from gemjax.distill.relevance import words


def coverage(
    sentences: Sequence[str], costs: Int[np.ndarray, "n"], ties: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    r"""A worth of each sentence that puts them in the order of the greedy choice for maximum coverage.

    A word that $m$ of the $n$ sentences hold weighs $\log(1 + (n - m + 1/2) / (m + 1/2))$, as in BM25. The next
    sentence is always the one whose words that no chosen sentence holds weigh most per token (budgeted maximum
    coverage: Khuller, Moss and Naor 1999). The order does not depend on a budget, so a larger one only adds.

    Args:
        sentences: in their order in the text.
        costs: tokens that each takes, at least 1.
        ties: what orders sentences that are worth the same, larger is better; then the earlier one.

    Returns: float64 `[n]`, distinct; only the order matters.
    """
    held = [set(words(sentence)) for sentence in sentences]
    often = Counter(word for own in held for word in own)
    weight = {word: math.log(1 + (len(held) - m + 0.5) / (m + 0.5)) for word, m in often.items()}
    said: set[str] = set()

    def entry(i: int) -> tuple[float, float, int]:
        # Summed exactly: a set's order differs between processes, and plain sums of floats with it.
        return -math.fsum(weight[word] for word in held[i] - said) / float(costs[i]), -float(ties[i]), i

    queue = [entry(i) for i in range(len(held))]
    heapq.heapify(queue)
    worth = np.zeros(len(held))
    for rank in range(len(held)):
        # What a sentence adds only falls while others are chosen: a first entry that is still true is the best one.
        # Gains alone are compared: a tie that is not a number equals nothing, not even itself.
        while (now := entry(queue[0][2]))[0] != queue[0][0]:
            heapq.heapreplace(queue, now)
        i = heapq.heappop(queue)[2]
        worth[i] = -rank
        said |= held[i]
    return worth
