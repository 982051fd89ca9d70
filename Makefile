# Slicewise: `make demo` shows it, `make test` proves it, `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ONLY   ?=

.DEFAULT_GOAL := help
.PHONY: help setup check test bench demo table format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## make the virtual environment

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slicewise needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,plot]'
	@touch $@

check: setup ## lint, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup ## run the tests
	$(BIN)/pytest -n auto -q

bench: setup ## measure, one JSON object a line; ONLY=prefix runs a part
	@$(BIN)/python -m bench $(ONLY)

demo: setup ## replay the bundled sample under several policies
	$(BIN)/slicewise simulate

table: setup ## every openb trace under every policy, with the bounds
	$(BIN)/slicewise compare

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis out
