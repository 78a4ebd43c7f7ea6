"""The table that `CompressionResult.explain` and `gemjax compress` print."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemjax.history.result import BlockRecord, CompressionResult


def print_result(result: CompressionResult, width: int | None = None, console: Console | None = None) -> None:
    """Print the summary and one line a block."""
    console = console or Console(width=width, soft_wrap=False)
    if result.blocks:
        console.print(_table(result.blocks))
    console.print(summary(result), highlight=False)


def summary(result: CompressionResult) -> Text:
    """Two or three lines: what happened, why, and what it saved."""
    colour = {"compressed": "green", "unchanged": "cyan", "reverted": "yellow", "failed": "red"}[result.status]
    text = Text.assemble((result.status, f"bold {colour}"), f": {result.reason}\n")
    if result.blocks:
        kept = sum(b.kept for b in result.blocks)
        text.append(f"{kept} of {len(result.blocks)} blocks forwarded, {len(result.core)} in the core")
        if result.coverage is not None:
            text.append(f" (coverage {result.coverage:.3f})")
        text.append("\n")
    if result.chars_before:
        saved = 1 - result.ratio
        text.append(f"{result.chars_before:,} -> {result.chars_after:,} characters ({saved:.1%} fewer)")
    if result.first_changed_message is not None:
        text.append(f"; a prompt cache is good up to message {result.first_changed_message}")
    text.rstrip()
    return text


def _table(blocks: list[BlockRecord]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("", width=4)
    table.add_column("chars", justify="right")
    table.add_column("resid", justify="right")
    table.add_column("block", overflow="ellipsis", no_wrap=True, ratio=3)
    table.add_column("why", overflow="fold", ratio=4)
    for block in blocks:
        style = "" if block.kept else "dim"
        table.add_row(
            str(block.index),
            Text("keep", "green") if block.kept else Text("drop", "red"),
            f"{block.chars:,}",
            "" if block.residual is None else f"{block.residual:.2f}",
            Text(printable(block.label)),
            Text(printable(block.why)),
            style=style,
        )
    return table


def printable(text: str) -> str:
    """`text` without what a terminal cannot show: control characters and lone surrogates become U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
