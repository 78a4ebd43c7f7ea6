"""What the user said inside a tool result: the answer to a question that a tool asked, or the refusal of a call."""

import re
from collections.abc import Iterable
from functools import lru_cache

_HEAD = 400
"""So much of a result's beginning is looked at: it is where tools say whose words follow."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PEOPLE = frozenset({"user", "users", "human", "humans", "person", "operator", "customer", "owner", "me"})
_ASKING = frozenset({"ask", "asks", "asking", "prompt", "consult", "interview", "poll", "quiz"})
_GETTING = frozenset(
    {"get", "request", "await", "wait", "collect", "read", "require", "seek", "solicit", "elicit", "obtain", "receive"}
)
_ANSWERS = frozenset(
    {
        "input", "inputs", "answer", "answers", "response", "feedback", "reply", "choice", "decision", "preference",
        "confirmation", "approval", "permission", "consent", "clarification", "clarifications", "guidance", "review",
    }
)  # fmt: skip
_QUESTIONS = frozenset(
    {
        "question", "questions", "followup", "clarification", "clarifying", "clarify", "confirmation", "confirm",
        "permission", "approval", "approve", "preference", "feedback",
    }
)  # fmt: skip
# Whole names, as words, that ask although no word of theirs says whom.
_NAMES = frozenset(
    {
        "question", "questions", "human", "clarify", "clarification", "elicit", "elicitation",
        "exit plan mode", "plan mode respond", "present plan", "propose plan", "submit plan", "approve plan",
        "human in the loop", "ask", "ask for help", "request help", "ask for input", "ask input", "request input",
        "get input", "wait for input", "confirm action", "request approval", "request confirmation",
        "request permission", "request permissions", "request clarification", "request feedback", "await approval",
        "wait for approval", "wait for confirmation", "seek clarification", "get approval", "get confirmation",
        "prompt for input", "user elicitation", "hitl", "vscode ask questions",
    }
)  # fmt: skip


@lru_cache(maxsize=4096)
def asks_the_user(name: str) -> bool:
    """Whether a tool of this name asks the user something, so that its result is the user's word. Any casing, any
    prefix of a server.

    >>> asks_the_user("AskUserQuestion"), asks_the_user("mcp__ide__ask_followup_question"), asks_the_user("get_user")
    (True, True, False)
    """
    own = re.split(r"__|[./:]", name[:200])[-1] or name[:200]
    words = [word.lower() for word in _WORD.findall(own)]
    if len(words) == 1 and (whole := _FUSED.match(words[0])):
        words = [part for part in whole.groups() if part]
    if " ".join(words) in _NAMES:
        return True
    found = set(words)
    people = bool(found & _PEOPLE)
    if found & _ASKING and (people or found & _QUESTIONS):
        return True
    if {"follow", "up"} <= found and found & (_ASKING | {"question", "questions"}):
        return True
    if not people:
        return False
    # `get_user_input` asks, `get_user` and `request_user_data` look up.
    if found & _ANSWERS and (found & _GETTING or len(found - _PEOPLE) == 1):
        return True
    return bool(found & {"confirm", "clarify", "check", "verify"} and "with" in found)


_FUSED = re.compile(
    r"(ask|request|get|prompt|await|wait)?(?:for)?(user|human)?(question|questions|input|followup|feedback|approval"
    r"|confirmation|clarification|response|answer)?(question|questions)?$"
)

_USER = r"(?:the |your )?(?:user|human|operator)"
_SAID = re.compile(
    # "The user has answered ...", "User rejected the tool call", "the user doesn't want to proceed"
    rf"\b{_USER}(?: has| have|'s)? (?:just )?(?:already )?(?:answered|responded|replied|said|says|wrote"
    r"|selected|chose|chosen|picked|approved|accepted|confirmed|declined|rejected|denied|refused|dismissed|skipped|cancell?ed|aborted|interrupted"
    r"|stopped|blocked|disapproved|vetoed|provided (?:the )?(?:following )?(?:feedback|answer|input|response)"
    r"|(?:did not|didn't|does not|doesn't|do not|don't|will not|won't|has not|hasn't|have not|haven't)"
    r" (?:want|wish|allow|approve|accept|permit|grant|agree|respond|answer|confirm|authori[sz]e|consent))"
    rf"|\b{_USER}'?s? (?:answer|response|reply|feedback|choice|decision|selection)s?\b ?(?:is|was|were|:|=)"
    # "rejected by user", "permission denied by the user", "interrupted by user"
    r"|\b(?:rejected|denied|declined|refused|cancell?ed|aborted|interrupted|stopped|dismissed|skipped|blocked|disapproved"
    rf"|vetoed|approved|confirmed|not (?:approved|allowed|permitted|authori[sz]ed))(?: \w+)? by {_USER}\b"
    # said without naming anyone, by the agents that ask for permission
    r"|\btool use was rejected\b"
    r"|\btool (?:call|execution|use) (?:was |has been )?(?:denied|rejected|declined|not approved)\b"
    r"|\bwas not approved\b|\bhaven't granted it\b|\bPermission to use [^\n]{1,200}? (?:has been|was) denied\b"
    r"|\[Request interrupted\b|\"?execution-denied\b",
    re.I,
)
_NEEDLES = (
    "user",
    "User",
    "USER",
    "uman",
    "perator",
    "Tool",
    "tool",
    "approved",
    "granted",
    "Permission",
    "[Req",
    "denied",
)


def user_words(pairs: Iterable[tuple[str, str]]) -> str:
    """One line that says how the user speaks in one of a block's results; empty if nowhere.

    Args:
        pairs: each call's name with its result's text.

    >>> user_words([("Bash", "The user doesn't want to proceed with this tool use.")])
    "the user decided on Bash: The user doesn't want"
    """
    for name, text in pairs:
        if not text or text.isspace():
            continue
        if asks_the_user(name):
            return f"what the user answered to {name[:60]}"
        head = text[:_HEAD]
        if (
            any(needle in head for needle in _NEEDLES)
            and (match := _SAID.search(head))
            and _speaks(head, match.start())
        ):
            return f"the user decided on {name[:60]}: {match[0].strip()}"
    return ""


def _speaks(head: str, at: int) -> bool:
    """Whether the words stand where a tool speaks: in its first lines, not in something that it was asked to show."""
    line = head.rfind("\n", 0, at) + 1
    before = head[line:at]
    if head.count("\n", 0, at) > 4 or len(before) > 160:
        return False
    # A line of code, of a search's hits or of a numbered listing quotes the words.
    return _QUOTING.search(before) is None


_QUOTING = re.compile(
    r"^\s*(?:\d+[\t:|→-]|//|#|\*|/\*|--|[\w./-]+:\d+:|[+-] ?\w|\w+\()|[=(] ?[\"'`f]|\breturn\b|\braise\b|\bdef\b"
)
