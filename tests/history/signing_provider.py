"""A provider that signs thinking and refuses it where what stands before it has changed: a second opinion."""

from tests.history.contract import compact

BOUND = "claude-sonnet-5-5"


class Provider:
    """Remembers, for each thinking block it signed, all that stood before it; refuses what does not fit.

    What stood before is the text of the frame and of every part outside thinking, without cache marks, and the chain of
    signatures. The chain that a request holds before a block must be an end of that block's own chain.
    """

    def __init__(self):
        self.made = {}

    @staticmethod
    def walk(request):
        """(signature, digest of what stands before it, signatures before it) of every thinking block."""
        said, chain, found = [compact([request.get("system"), request.get("tools")])], [], []
        for message in request["messages"]:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            said.append(message["role"])
            for part in parts:
                if part["type"] in ("thinking", "redacted_thinking"):
                    name = part.get("signature") or part["data"]
                    found.append((name, tuple(said), tuple(chain)))
                    chain.append(name)
                else:
                    said.append(compact({k: v for k, v in part.items() if k != "cache_control"}))
        return found, tuple(said), tuple(chain)

    def answer(self, request, signatures):
        """Checks a request as it arrives, then signs blocks that continue it; returns why it is refused, or None."""
        for place, message in enumerate(request["messages"]):
            if not message["content"]:
                return f"message {place} is empty"
        found, said, chain = self.walk(request)
        for name, before, earlier in found:
            if name not in self.made:
                return f"{name} was never signed"
            then, own = self.made[name]
            if before != then:
                return f"{name} is bound to a different conversation"
            if earlier != own[len(own) - len(earlier) :]:
                return f"thinking before {name} was left out of the middle"
        for name in signatures:
            self.made[name] = ((*said, "assistant"), chain)
            chain = (*chain, name)
        return None


def turn(number, thought, size=400, text=""):
    """An assistant message and its result; `thought` is the number of thinking blocks, negative for redacted ones."""
    parts = []
    for k in range(abs(thought)):
        if thought > 0:
            parts.append({"type": "thinking", "thinking": f"think {number}", "signature": f"s{number}.{k}"})
        else:
            parts.append({"type": "redacted_thinking", "data": f"s{number}.{k}"})
    if text:
        parts.append({"type": "text", "text": text})
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"cat f{number}.py"}}
    result = {
        "type": "tool_result",
        "tool_use_id": f"toolu_{number}",
        "content": f"{number} " + "some text " * (size // 10),
    }
    return {"role": "assistant", "content": [*parts, call]}, {"role": "user", "content": [result]}


def signatures(message):
    content = message["content"]
    parts = content if isinstance(content, list) else []
    return [p.get("signature") or p["data"] for p in parts if p["type"] in ("thinking", "redacted_thinking")]
