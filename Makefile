# Slicewise: `make demo` shows it, `make test` proves it, `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ONLY   ?=
# Many tests wait for a socket or a clock, so one more worker than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
ONCE   ?=
# The folder with the openb traces; what needs them says so where they are absent.
SLICEWISE_DATA ?= $(wildcard $(CURDIR)/../shared/data/openb)
export SLICEWISE_DATA

.DEFAULT_GOAL := help
.PHONY: help setup check native test kube e2e bench dist demo table format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## make the virtual environment

$(VENV)/ready: pyproject.toml constraints.txt packages/playground/pyproject.toml tests/testbed/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slicewise needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,plot]' --editable packages/playground --editable tests/testbed
	@touch $@

check: setup ## lint, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

native: setup ## build the C library that stands for NVML, and check its layouts
	@$(MAKE) --no-print-directory -C native/nvml
	@$(BIN)/python native/nvml/checks/check.py out/native/nvml

test: setup native ## run the fast tests, and say what was skipped and covered
	@mkdir -p out
	$(BIN)/python -m slipcover --source $(CURDIR)/src/slicewise,$(CURDIR)/packages/playground/src --json --out out/coverage.json \
		-m pytest -n $(WORKERS) --dist worksteal -q
	@$(BIN)/python tests/coverage_line.py out/coverage.json

kube: setup ## build the Kubernetes binaries into the cache, once
	@$(BIN)/slicewise-testbed build

e2e: kube ## run the tests that need a real cluster; never skips
	$(BIN)/pytest -q -m cluster --cluster=require

bench: setup ## measure, one JSON object a line; ONLY=prefix runs a part
	@$(BIN)/python -m bench $(ONLY)

dist: setup ## build wheels and source archives of product and playground into dist/
	$(BIN)/hatchling build -t sdist -t wheel -d $(CURDIR)/dist
	cd packages/playground && $(abspath $(BIN))/hatchling build -t sdist -t wheel -d $(CURDIR)/dist

demo: setup ## place every system's examples on simulated nodes; ONCE=1 checks and leaves
	@$(BIN)/slicewise demo $(if $(ONCE),--once)

table: setup ## every openb trace under every policy, with the bounds
	$(BIN)/slicewise compare

clean: ## remove what the other targets made, but not the binaries of make kube
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis out dist
