"""The table that `CompressionResult.explain` and `gemjax compress` print."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gemjax.history.result import BlockRecord, CompressionResult

_PIPE_WIDTH = 140


def print_result(result: "CompressionResult", width: int | None = None, console: Console | None = None) -> None:
    """Print one line a block and the summary; `width` in characters (default: the terminal's, 140 in a pipe)."""
    if console is None:
        console = Console(width=width)
        if width is None and not console.is_terminal:
            console = Console(width=_PIPE_WIDTH)
    if result.blocks:
        console.print(_table(result.blocks, console.width))
        if any(b.residual is not None for b in result.blocks):
            console.print("new: the share of a block's direction that the core does not cover", style="dim")
    console.print(summary(result), highlight=False)


def summary(result: "CompressionResult") -> Text:
    """Two or three lines: what happened, why, and what it saved."""
    colour = {"compressed": "green", "unchanged": "cyan", "reverted": "yellow", "failed": "red"}[result.status]
    text = Text.assemble((result.status, f"bold {colour}"), f": {result.reason}\n")
    if result.blocks:
        kept, n = sum(b.kept for b in result.blocks), len(result.blocks)
        text.append(f"{kept} of {n} block{'s' * (n != 1)} forwarded, {len(result.core)} in the core")
        if result.coverage is not None:
            text.append(f", which covers {result.coverage:.0%} of the history's directions")
        text.append("\n")
    if result.unknown:
        n = len(result.unknown)
        text.append(f"{n} block{'s' * (n != 1)} too costly to read: not known what they wrote, read or reported\n")
    if result.shortened:
        n = len(result.shortened)
        text.append(f"long results of {n} message{'s' * (n != 1)} go out short; recall finds the originals\n")
    if result.chars_before:
        saved = 1 - result.ratio
        text.append(f"{result.chars_before:,} -> {result.chars_after:,} characters ({saved:.1%} fewer)")
    if result.first_changed_message is not None:
        text.append(f"; what a provider has cached is good for the first {result.first_changed_message} messages")
    text.rstrip()
    return text


def _table(blocks: "list[BlockRecord]", width: int) -> Table:
    # What is left beside the four narrow columns and the gaps; the reason gets the larger half.
    room = max(width - 30, 40)
    label_width = room * 2 // 5
    table = Table(box=None, pad_edge=False, header_style="bold", show_lines=False)
    table.add_column("#", justify="right", width=4)
    table.add_column("", width=4)
    table.add_column("chars", justify="right", width=8)
    table.add_column("new", justify="right", width=4)
    table.add_column("block", no_wrap=True, width=label_width)
    table.add_column("why", overflow="fold", width=room - label_width)
    for block in blocks:
        table.add_row(
            str(block.index),
            Text("keep", "green") if block.kept else Text("drop", "red"),
            f"{block.chars:,}",
            "" if block.residual is None else f"{block.residual:.2f}",
            Text(_shorten(printable(block.label), label_width)),
            Text(printable(block.why)),
            style="" if block.kept else "dim",
        )
    return table


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "\u2026"


def printable(text: str) -> str:
    """`text` without what a terminal cannot show: control characters and lone surrogates become U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
