# `make demo` and `make test` set everything up themselves; nothing outside .venv and build/ is written.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint docs bench sweep tracewise-fuzz clean

help:           ## list these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/'

$(READY): constraints.txt packages/shardwise/pyproject.toml packages/shardwise-devtools/pyproject.toml packages/tracewise/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "shardwise needs Python 3.11 or newer; say which one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable 'packages/shardwise[test,dev,docs]' --editable packages/shardwise-devtools --editable 'packages/tracewise[test]'
	@touch $(READY)

demo: $(READY)  ## check a correct GPT and two broken ones, and show the verdicts
	@$(BIN)/python examples/demo.py

test: $(READY)  ## run every test
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadgroup

lint: $(READY)  ## style and static types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(READY)  ## build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(READY) ## measure against plain PyTorch and DTensor
	$(BIN)/python benchmarks/run.py --write

sweep: $(READY) ## hold every op rule against the numbers and renew docs/coverage.md
	$(BIN)/shardwise-devtools sweep --write

tracewise-fuzz: $(READY)  ## read 10,000 damaged trace logs
	TRACEWISE_FUZZ=10000 $(BIN)/python -m pytest --numprocesses $(JOBS) packages/tracewise/tests/test_fuzz.py

clean:          ## forget the environment and everything built
	rm -rf $(VENV) build
