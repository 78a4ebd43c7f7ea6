"""Which prefixes of requests are cached, for how long, and what a request costs with them."""

import hashlib
import json

from tests.provider.rules import unmarked

READ, WRITE, UNCACHED = 0.1, 1.25, 1.0
LOOKBACK = 20


class PrefixCache:
    """Prefixes by hash, with a time to live. A request reads its longest known prefix and writes the rest.

    With `marks` (Anthropic) a prefix is stored where a `cache_control` mark stands, what comes after the last mark is
    not cached, and a stored prefix is found only within `LOOKBACK` content blocks before a mark. Without, everything
    is stored and found.
    """

    def __init__(self, clock, ttl=300.0):
        self.clock, self.ttl = clock, ttl
        self.alive: dict[str, float] = {}

    def charge(self, frame, messages, marks):
        """Characters read, written and uncached, and what they cost at an input price of 1."""
        now = self.clock()
        blocks = [frame, *(b for m in messages for b in (_blocks(m) if marks else [m]))]
        running = hashlib.sha256()
        names, sizes, total = [], [], 0
        for block in blocks:
            text = json.dumps(unmarked(block), sort_keys=True, ensure_ascii=False)
            running.update(text.encode())
            total += len(text)
            names.append(running.hexdigest())
            sizes.append(total)
        ends = [i for i, b in enumerate(blocks) if "cache_control" in json.dumps(b)] if marks else range(len(blocks))
        read = 0
        for end in ends:
            near = range(end, max(end - LOOKBACK, -1) if marks else -1, -1)
            found = next((i for i in near if self.alive.get(names[i], -1.0) >= now), None)
            if found is not None:
                read = max(read, sizes[found])
        for end in ends:
            self.alive[names[end]] = now + self.ttl
        stop = sizes[ends[-1]] if ends else 0
        write, rest = stop - read, total - stop
        return {"read": read, "write": write, "rest": rest, "cost": READ * read + WRITE * write + UNCACHED * rest}


def _blocks(message):
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or [None]
    return [[message.get("role"), part] for part in parts]
