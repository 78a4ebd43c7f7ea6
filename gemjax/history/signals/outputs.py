"""Files that a program says it wrote: `Saved report to out/report.md`. The call alone does not show them."""

import re

from gemjax.history.signals.work import MOST, Work

_NEEDLES = ("rote ", "ritten", "aved", "aving", "xported", "enerated")
_ANNOUNCED = re.compile(
    r"^[^\n]{0,50}?\b(?:[Ww]rote|[Ww]ritten|[Ss]aved|[Ss]aving|[Ee]xported|[Gg]enerated)\b[^\n'\"]{0,60}?"
    r"(?:\b(?:to|in|at|as|into)\b|:)[ \t]{1,3}['\"`]?([^\s'\"`,;:()<>]{3,200})",
    re.M,
)
MAX_ANNOUNCED = 8
"""Most announcements taken from one result."""
_WINDOW = 8_000


def announced_files(text: str, work: Work | None = None) -> list[str]:
    """Words of a program's report that name a file it wrote, at most `MAX_ANNOUNCED`.

    >>> announced_files("[*] Saved credential cache to 'admin.ccache'\\nModel saved to runs/1/model.pt.")
    ['admin.ccache', 'runs/1/model.pt']
    """
    if not any(needle in text for needle in _NEEDLES):
        return []
    (work or Work(MOST)).spend(2 * min(len(text), 2 * _WINDOW))
    text = text if len(text) <= 2 * _WINDOW else text[:_WINDOW] + "\n" + text[-_WINDOW:]
    names = [match[1].rstrip(".") for match in _ANNOUNCED.finditer(text)]
    return [name for name in dict.fromkeys(names) if "." in name or "/" in name][:MAX_ANNOUNCED]
