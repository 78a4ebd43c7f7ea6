"""File names in patches: Codex's `*** Update File:` envelope and unified diffs."""

import re

_ENVELOPE = re.compile(r"^\*\*\* (?:(?:Update|Add|Delete|Move) File|Move to): (.+)$", re.M)
_UNIFIED = re.compile(r"^(?:\+\+\+|---) (?:[ab]/)?([^\t\n]+)", re.M)


def patched_paths(patch: str) -> list[str]:
    """The files that a patch adds, changes, moves or deletes, in order, as written.

    >>> patched_paths("*** Begin Patch\\n*** Update File: src/app.py\\n@@\\n-a\\n+b\\n*** End Patch")
    ['src/app.py']
    >>> patched_paths("--- a/old.py\\n+++ b/new.py\\n@@ -1 +1 @@\\n")
    ['old.py', 'new.py']
    """
    names = _ENVELOPE.findall(patch) or [n for n in _UNIFIED.findall(patch) if n.strip() != "/dev/null"]
    return list(dict.fromkeys(name.strip() for name in names))
