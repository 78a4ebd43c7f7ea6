"""The house: no import runs upward, kernels stand on nothing of ours, and no modules import each other in a circle.

Imports inside functions count like all others; those under `TYPE_CHECKING` only tell a type checker something.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "gemjax"
# From the ground up. A room may import those below it and itself; a front door (`__init__` of the package) is on top.
FLOORS = [
    {"errors", "wording", "durable"},
    {"terminal"},
    {"kernels"},
    {"models"},
    {"encoders"},
    {"memory", "distill"},
    {"history"},
    {"coremem", "integrations"},
    {"serve"},
    {"evaluation"},
    {"commands"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> dict[str, Path]:
    out = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def under_type_checking(tree: ast.AST) -> set[ast.AST]:
    """Everything that stands under `if TYPE_CHECKING`."""
    tests = (n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test))
    return {inner for test in tests for statement in test.body for inner in ast.walk(statement)}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, as far as its text says."""
    tree = ast.parse(path.read_text("utf-8"))
    skipped = under_type_checking(tree)
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                found.add(deeper if deeper in known else str(node.module))
    return {name for name in found if name in known}


KNOWN = modules()
GRAPH = {name: imported(path, KNOWN) - {name} for name, path in KNOWN.items()}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "gemjax"


def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in KNOWN} - {"gemjax"} <= FLOOR.keys()


def test_no_import_runs_upward() -> None:
    upward = [
        f"{name} -> {other}"
        for name, others in GRAPH.items()
        for other in others
        if name != "gemjax"
        and other != "gemjax"
        and (FLOOR[room(other)], room(other)) != (FLOOR[room(name)], room(name))
        and FLOOR[room(other)] >= FLOOR[room(name)]
    ]
    assert not upward


def test_kernels_import_nothing_of_ours() -> None:
    ours = {name: others for name, others in GRAPH.items() if room(name) == "kernels"}
    assert ours and not [name for name, others in ours.items() if any(room(other) != "kernels" for other in others)]


def circles() -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan, without recursion limits in reach)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(GRAPH[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                out.append(sorted(members))

    for node in GRAPH:
        if node not in index:
            visit(node)
    return out


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles() == []


@pytest.mark.parametrize("name", ["utils", "util", "helpers", "helper", "common", "misc"])
def test_names_tell_a_job(name: str) -> None:
    assert not [module for module in KNOWN if module.rsplit(".", 1)[-1] == name]


def test_no_test_imports_a_test():
    """What several tests use stands in a module of its own: collecting one file must not run another."""
    folder = PACKAGE.parent / "tests"
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            wrong = [name for name in named if name.rpartition(".")[2].startswith("test_") and "tests" in name]
            assert not wrong, f"{path.relative_to(folder)} imports {wrong}"


def test_bench_holds_benchmarks_only():
    """`make bench` runs every file there; searches for settings and writers of pages have rooms of their own."""
    files = sorted((PACKAGE.parent / "bench").glob("*.py"))
    assert len(files) > 10
    for path in files:
        functions = [n for n in ast.parse(path.read_text("utf-8")).body if isinstance(n, ast.FunctionDef)]
        timed = [f for f in functions if f.name.startswith("test_") and any(a.arg == "benchmark" for a in f.args.args)]
        assert path.name.startswith("bench_") and timed, f"{path.name} has nothing to run under pytest-benchmark"


def test_one_name_is_one_class():
    """Two classes of one name with different members make a reader look up which one is meant."""
    # What is left over: a name leaves this list when one of its classes gets a name of its own.
    allowed = {"Line": 2, "Plan": 3, "Reader": 2}
    places: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    twice = {name: found for name, found in places.items() if len(found) > allowed.get(name, 1)}
    assert not twice
