"""From turns to the sessions that they are of."""

from collections.abc import Sequence

from gemjax.memory.hits import Hit, SessionHit


def by_session(hits: Sequence[Hit], k: int, turns: int) -> list[SessionHit]:
    """Sessions in the order of their best turns, at most `k`, with at most `turns` of them each."""
    found: dict[tuple[tuple[str, ...], str], list[Hit]] = {}
    for hit in hits:
        if hit.session is not None:
            found.setdefault((hit.scope, hit.session), []).append(hit)
    return [
        SessionHit(session, scope, own[0].score, rank, tuple(own[:turns]))
        for rank, ((scope, session), own) in enumerate(list(found.items())[:k], 1)
    ]
