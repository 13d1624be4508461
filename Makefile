# One command to watch a model learn (make run), one to check everything (make test).
# Both set up what they need first; scripts/setup.sh says what and how.

SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
RUN_ARGS ?=
PYTEST_ARGS ?=
CHOSEN := not serial and not thorough
export VENV

# Where Python may not keep what it compiled, each of the hundreds of processes that the tests
# start compiles torch anew, which takes longer than all else that most of them do.
unexport PYTHONDONTWRITEBYTECODE

# On a build server a missing simulator is a failure, not a skipped test.
ifeq ($(CI),true)
export RLVR_REQUIRE_TOOLS ?= 1
endif

.DEFAULT_GOAL := help
.PHONY: help run test test-all check test-tinker-independent setup setup-run rootfs lint bench clean linted tested

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup-run ## train the starter model on Verilog problems and show what it learned
	$(BIN)/rlvr run --plugin cvdp --algo grpo $(RUN_ARGS)

test: setup ## linters, type checker, import contracts and tests
	@$(MAKE) --no-print-directory --jobs 2 linted tested || \
	  { echo "make test failed: linters (linted) or tests (tested), as said above"; exit 1; }

test-all: export RLVR_ALL_PLACES := 1
test-all: ## the same with thorough tests, and each sandbox for each case
	@$(MAKE) --no-print-directory CHOSEN="not serial" test

tested:
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 1 \
	  --durations 20 --durations-min 2 -m "$(CHOSEN)" $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m serial $(PYTEST_ARGS) $$(grep -rl --include='test_*.py' mark.serial \
	  tests plugins rlvr-* examples) || [ $$? -eq 5 ] # 5: none was selected

linted: # beside the tests it takes half its time: it has one thread
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: setup ## lint, types and the core's quick tests, while one works
	@$(BIN)/mypy & types=$$!; \
	  $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-cache && \
	  $(BIN)/python -m pytest -q -n 2 --dist loadfile \
	    -m "$(CHOSEN) and not slow and not integration" tests \
	    --ignore=tests/{benchmarks,cli,docs,integration,learning,packaging,testing,typing} \
	    --ignore=tests/{starts,tinker_independent} $(PYTEST_ARGS); \
	  code=$$?; wait $$types && exit $$code

test-tinker-independent: ## rlvr-tinker against a third party's server and tinker-cookbook's loops
	@scripts/tinker_independent.sh test

lint: setup ## ruff, mypy and import-linter only
	@$(MAKE) --no-print-directory linted

bench: setup ## the measurements of docs/benchmarks.md
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script; done

setup: ## make the environment for development
	@scripts/setup.sh dev

setup-run: ## make the environment for a run only (smaller)
	@scripts/setup.sh run

rootfs: ## build the Debian 13 root for the sandbox (iverilog 12; needs root, a minute)
	@scripts/setup.sh rootfs

clean: ## remove the environment, caches and built files (runs/ is kept)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
