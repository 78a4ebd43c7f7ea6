"""Whether signed thinking still stands behind what it was made behind, over the requests of one conversation.

A single request cannot tell: `validate` warns of a model that checks it; this tells, for the requests that went out,
what that model refuses.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from gemjax.history.formats import plain
from gemjax.history.formats.base import Format, compact_json, problem
from gemjax.history.formats.marks import unmarked
from gemjax.history.problems import Problem
from gemjax.history.thinking import checks_binding, signatures, without_thinking


class SignedPrefixes:
    """Remembers, for each signed message, what went out before it when it was made.

    What stands before it is everything but thinking and cache marks; thinking may be left out from the start of the
    chain, never from its middle.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], tuple[bytes, tuple[str, ...]]] = {}
        self._sent: tuple[bytes, tuple[str, ...]] | None = None

    def changed(self, request: Any, format: Format, messages: Sequence[Any]) -> list[Problem]:
        """What the provider refuses in a request that goes out, and what it will bind the answer to.

        Args:
            request: it, in full; its model decides whether anybody checks.
            format: its wire format.
            messages: its messages.

        Returns: one problem, for the first message whose thinking does not fit; empty if all do. The first signed
            message that was not there before was made behind what went out last.
        """
        if not checks_binding(request, format, messages):
            return []
        found: list[Problem] = []
        said = hashlib.blake2b(digest_size=16)
        chain: tuple[str, ...] = ()
        for index, message in enumerate(messages):
            signed = signatures(message)
            if signed:
                if signed not in self._made:
                    self._made[signed] = self._sent or (said.digest(), chain)
                    self._sent = None
                before, earlier = self._made[signed]
                if before != said.digest():
                    found.append(_refused(index, "something before it was changed since it was made"))
                elif chain != earlier[len(earlier) - len(chain) :]:
                    found.append(_refused(index, "thinking was left out from the middle before it"))
                chain = (*chain, *signed)
            said.update(compact_json(unmarked(plain(without_thinking(message)))).encode("utf-8", "surrogatepass"))
            said.update(b"\n")
        self._sent = (said.digest(), chain)
        return found[:1]


def _refused(index: int, why: str) -> Problem:
    fix = 'leave thinking out with what it was bound to, or set prefix_mismatch_behavior to "drop_block"'
    return problem("bound-thinking", f"signed thinking is bound to everything before it, and {why}", fix, "", index)
