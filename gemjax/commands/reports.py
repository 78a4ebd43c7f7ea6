"""What the commands that make tables from recorded agents do with their result."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemjax.commands.files import print_json, write_atomically


def conclude(result: Any, arguments: argparse.Namespace, save: Callable[..., list[str]]) -> int:
    """Write the files that `--out` asks for, then print.

    Args:
        result: with `tables`, `footer`, `interrupted` and `to_json()`.
        arguments: `out` and `json`.
        save: writes into a folder and returns what it could not write.

    Returns: 130 for an interrupted run, 2 when there is no table or a file is missing, else 0.
    """
    from gemjax.evaluation.gem.report import print_report
    from gemjax.terminal import report_console

    troubles = save(result, Path(arguments.out), write_atomically) if arguments.out else []
    result.footer.extend(troubles)
    if arguments.json:
        print_json(result.to_json())
    else:
        print_report(result, report_console())
    if result.interrupted:
        return 130
    return 2 if not result.tables or any(line.startswith("not written") for line in troubles) else 0
