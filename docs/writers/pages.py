"""Where the pages are, and how a measured part gets into one."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def insert(page: Path, name: str, content: str) -> None:
    text = page.read_text()
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if start not in text or end not in text:
        raise SystemExit(f"{page.name} has no place {start} ... {end}")
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    page.write_text(f"{head}{start}\n{content}\n{end}{tail}")
