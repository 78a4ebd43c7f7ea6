"""One moment of a request that another thread may be changing: what goes out was the request at that moment."""

import copy
import dataclasses
from typing import Any

from gemjax.history.formats import FORMATS
from gemjax.history.result import CompressionResult

_KEYS = tuple({format.key for format in FORMATS.values()})


def snapshot(request: Any) -> Any:
    """The request with a message list of its own, also for a bare tuple; the messages are the same objects."""
    if isinstance(request, list | tuple):
        return list(request)
    if not isinstance(request, dict):
        return request
    taken = copy.copy(request)
    for key in _KEYS:
        if isinstance(taken.get(key), list):
            taken[key] = list(taken[key])
    return taken


def returned(result: CompressionResult, request: Any, taken: Any) -> CompressionResult:
    """A result that says nothing is to change names the caller's own object, unless that is another request by now."""
    if result.request is not taken or not _same(request, taken):
        return result
    return dataclasses.replace(result, request=request)


def _same(request: Any, taken: Any) -> bool:
    if isinstance(request, list | tuple):
        return _identical(request, taken)
    if not isinstance(request, dict):
        return request is taken
    lists = [key for key in _KEYS if isinstance(taken.get(key), list)]
    return request.keys() == taken.keys() and all(_identical(request[key], taken[key]) for key in lists)


def _identical(one: Any, other: list[Any]) -> bool:
    return (
        isinstance(one, list | tuple)
        and len(one) == len(other)
        and all(a is b for a, b in zip(one, other, strict=False))
    )
