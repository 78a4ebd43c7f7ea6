"""The examples in docstrings print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import gemjax

MODULES = sorted(m.name for m in pkgutil.walk_packages(gemjax.__path__, "gemjax."))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_some():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for n in MODULES for t in finder.find(importlib.import_module(n)) if t.examples]
    assert len(found) >= 5
