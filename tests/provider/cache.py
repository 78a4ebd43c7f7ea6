"""Which prefixes of requests are cached, for how long, and what a request costs with them."""

import hashlib
import json

from tests.provider.rules import unmarked

READ, WRITE, UNCACHED = 0.1, 1.25, 1.0


class PrefixCache:
    """Prefixes by hash, with a time to live. A request reads its longest known prefix and writes the rest.

    With `marks` (Anthropic) only what stands before a `cache_control` mark is cached; without, everything is.
    """

    def __init__(self, clock, ttl=300.0):
        self.clock, self.ttl = clock, ttl
        self.alive: dict[str, float] = {}

    def charge(self, frame, messages, marks):
        """Characters read, written and uncached, and what they cost at an input price of 1."""
        now = self.clock()
        pieces = [frame, *messages]
        texts = [json.dumps(unmarked(p), sort_keys=True, ensure_ascii=False) for p in pieces]
        last = max((i for i, p in enumerate(pieces) if "cache_control" in json.dumps(p)), default=-1)
        stop = last + 1 if marks else len(pieces)
        running = hashlib.sha256()
        read = total = written_to = 0
        for index, text in enumerate(texts):
            running.update(text.encode())
            total += len(text)
            if index >= stop:
                continue
            name = running.hexdigest()
            if self.alive.get(name, -1.0) >= now and read == written_to:
                read = total
            self.alive[name] = now + self.ttl
            written_to = total
        write, rest = written_to - read, total - written_to
        return {"read": read, "write": write, "rest": rest, "cost": READ * read + WRITE * write + UNCACHED * rest}
