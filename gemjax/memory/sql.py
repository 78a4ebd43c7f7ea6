"""A tree of tests on facets as the condition of an SQL query: LanceDB's dialect, and PostgreSQL's."""

from collections.abc import Callable, Mapping
from typing import Any

from gemjax.memory.facets import AnyToken, Compare, Every, Holds, Opposite, Some, Test


def _joined(test: Test, leaf: Callable[[AnyToken | Compare | Holds], str]) -> str:
    if isinstance(test, Every | Some):
        if not test.parts:
            return "TRUE" if isinstance(test, Every) else "FALSE"
        word = " AND " if isinstance(test, Every) else " OR "
        return "(" + word.join(_joined(part, leaf) for part in test.parts) + ")"
    if isinstance(test, Opposite):
        return f"NOT {leaf(test.part)}"
    return leaf(test)


# ---- LanceDB: literals in the text, a column for every key and kind ----------------------------------------------


def lance_condition(test: Test, columns: Mapping[tuple[str, str], str]) -> str:
    """The condition in DataFusion's SQL. Every text is a literal in which only the quote has a meaning.

    Args:
        test: from `tests_of`.
        columns: the table's column for a kind and a key; what is missing no memory has.
    """

    def leaf(test: AnyToken | Compare | Holds) -> str:
        if isinstance(test, AnyToken):
            return f"array_has_any(facets, [{', '.join(map(_quoted, test.tokens))}])"
        column = columns.get((test.kind, test.key))
        if column is None:
            return "FALSE"
        if isinstance(test, Holds):
            return f"({column} IS NOT NULL AND strpos({column}, {_quoted(test.needle)}) > 0)"
        if test.value is None:
            return f"({column} IS NOT NULL)"
        if isinstance(test.value, str):
            value = _quoted(test.value)
        else:
            value = repr(double(test.value)) if test.kind == "number" else str(int(test.value))
        return f"({column} IS NOT NULL AND {column} {test.sign} {value})"

    return _joined(test, leaf)


def double(value: int | float) -> float:
    """The nearest float64, the largest one for what lies beyond."""
    try:
        return float(value)
    except OverflowError:
        return 1.7976931348623157e308 if value > 0 else -1.7976931348623157e308


def _quoted(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate: no stored text has one
    return "'" + text.replace("'", "''") + "'"


# ---- PostgreSQL: parameters only ---------------------------------------------------------------------------------


def postgres_condition(test: Test) -> tuple[str, list[Any]]:
    """The condition and its parameters: no name and no value of the caller's is part of the text."""
    parameters: list[Any] = []

    def leaf(test: AnyToken | Compare | Holds) -> str:
        if isinstance(test, AnyToken):
            parameters.append(list(test.tokens))
            return "facets && %s::text[]"
        if not _storable(test.key) or (isinstance(test, Holds) and not _storable(test.needle)):
            return "FALSE"
        parameters.append([test.kind, test.key])
        value = "(ordered #>> %s::text[])"
        if isinstance(test, Holds):
            parameters.append(test.needle)
            return f"COALESCE(strpos({value}, %s::text) > 0, FALSE)"
        if test.value is None:
            return f"({value} IS NOT NULL)"
        if isinstance(test.value, str):
            # As far as a NUL, which no stored text has: what is equal up to it is smaller.
            head, nul, _ = test.value.encode("utf-8", "replace").decode().partition("\0")
            sign = {">=": ">", "<": "<="}.get(test.sign, test.sign) if nul else test.sign
            parameters.append(head)
            return f'COALESCE({value} COLLATE "C" {sign} %s::text, FALSE)'
        parameters.append(repr(test.value) if test.kind == "number" else int(test.value))
        cast = "numeric" if test.kind == "number" else "bigint"
        return f"COALESCE({value}::{cast} {test.sign} %s::{cast}, FALSE)"

    return _joined(test, leaf), parameters


def _storable(text: str) -> bool:
    """Whether PostgreSQL can hold it: it has neither NUL nor lone surrogates."""
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
