# `make demo` and `make test` set everything up themselves; nothing outside .venv and build/ is written.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 4
PYTEST  = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadgroup
TORCHES ?= 2.13.0 2.14.1
TESTS  ?= -m "not processes"
export OMP_NUM_THREADS ?= 1
# Tests start hundreds of processes: without bytecode each compiles shardwise anew, and each worker every test module.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-fast nightly ecosystem lint hooks docs figures matrix bench rules sweep mutants trace-demo tracewise-fuzz tracewise-browser tracewise-bench report-browser vscode clean

help:           ## list these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

$(READY): constraints.txt packages/shardwise/pyproject.toml packages/shardwise-devtools/pyproject.toml packages/tracewise/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "shardwise needs Python 3.11 or newer; say which one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable 'packages/shardwise[test,dev,docs,write,report,lsp,mcp]' --editable packages/shardwise-devtools --editable 'packages/tracewise[test]'
	@touch $(READY)

demo: $(READY)  ## check a correct GPT and two broken ones, and show the verdicts
	@$(BIN)/python examples/demo.py

test: $(READY)  ## run the tests, but those that are marked slow
	$(PYTEST) -m "not slow"

test-slow: $(READY) ## run the tests that are marked slow
	$(PYTEST) -m slow $(shell grep -rl "mark.slow" packages --include="test_*.py")

# Each worker imports all test modules, so that for few tests two are faster than four.
test-fast: $(READY) ## run the tests that start no processes, one in eight of what is alike
	$(PYTEST) --numprocesses 2 -m "not processes and not slow" --sample=8

matrix:         ## run the fast tests on every torch of the range; make matrix TORCHES=nightly TESTS= INDEX=...
	@mkdir -p build/matrix && grep -v '^torch==' constraints.txt > build/matrix/constraints.txt
	@for torch in $(TORCHES); do \
	  env=build/matrix/$$torch; echo "== torch $$torch"; \
	  case $$torch in nightly) wanted="--pre torch";; *) wanted="torch==$$torch";; esac; \
	  test -x $$env/bin/python || $(PYTHON) -m venv $$env || exit 1; \
	  $$env/bin/python -m pip install --quiet $(if $(INDEX),--index-url $(INDEX)) $$wanted \
	  && $$env/bin/python -m pip install --quiet --constraint build/matrix/constraints.txt \
	       --editable 'packages/shardwise[test,dev,write,report,lsp,mcp]' --editable packages/shardwise-devtools --editable 'packages/tracewise[test]' \
	  && $$env/bin/shardwise doctor \
	  && $$env/bin/python -m pytest --numprocesses $(JOBS) --dist loadgroup $(TESTS) packages/shardwise/tests || exit 1; \
	done

nightly: $(READY) ## many more random programs, all operators of PyTorch's database, all mutants and all fixes
	$(PYTEST) --hypothesis-profile nightly
	$(BIN)/shardwise-devtools sweep --jobs $(JOBS)
	$(BIN)/shardwise-devtools crashes --tries 200 --jobs $(JOBS)
	$(BIN)/shardwise-devtools mutants --jobs $(JOBS) --check
	$(BIN)/shardwise-devtools advice --jobs $(JOBS)
	$(MAKE) tracewise-fuzz

ecosystem: $(READY) ## run training frameworks as they are released, and renew docs/ecosystem.md
	$(BIN)/shardwise-devtools ecosystem --write

hooks: $(READY) ## run style and import checks before every commit
	$(BIN)/pre-commit install

lint: $(READY)  ## style and static types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(READY)  ## build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

figures: $(READY) ## draw the figures of the documentation anew
	$(BIN)/shardwise-devtools figures --write

bench: $(READY) ## measure against plain PyTorch and DTensor
	$(BIN)/python benchmarks/run.py --write

rules: $(READY) ## write down what the installed torch says of its operators
	$(BIN)/shardwise-devtools rules --write

sweep: $(READY) ## hold every op rule against the numbers and renew docs/coverage.json
	$(BIN)/shardwise-devtools sweep --jobs $(JOBS) --write

mutants: $(READY) ## make mistakes in right programs, see what is noticed, and renew docs/mutants.md
	$(BIN)/shardwise-devtools mutants --jobs $(JOBS) --write

trace-demo: $(READY) ## trace a program that breaks, recompiles and fails, and write the report of it
	@$(BIN)/python packages/tracewise/samples/demo.py

report-browser: $(READY) ## open the report of a check in Chromium (apt-get install chromium) and hold it to attacks
	$(BIN)/python -m pytest packages/shardwise/tests/report/test_report_browser.py

tracewise-browser: $(READY) ## open reports in Chromium (apt-get install chromium) and hold them to attacks
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable 'packages/tracewise[browser]'
	$(BIN)/python -m pytest packages/tracewise/tests/test_browser.py

tracewise-bench: $(READY) ## measure the report of a log of 200 MB
	$(BIN)/python packages/tracewise/samples/bench.py

tracewise-fuzz: $(READY)  ## read 10,000 damaged trace logs
	TRACEWISE_FUZZ=10000 $(BIN)/python -m pytest --numprocesses $(JOBS) packages/tracewise/tests/test_fuzz.py

vscode:         ## build the extension for VS Code in editors/vscode, where npm is present
	@command -v npm >/dev/null || { echo "make vscode needs npm, which comes with Node.js"; exit 1; }
	cd editors/vscode && npm ci --no-audit --no-fund && npm run build

clean:          ## forget the environment and everything built
	rm -rf $(VENV) build
