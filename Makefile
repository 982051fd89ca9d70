# Slicewise: `make demo` shows it, `make test` proves it, `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ONLY   ?=
# Tests on clusters mostly wait; files run side by side, each process with clusters of its own.
LANES  ?= 2
# Many tests wait for a socket or a clock, so one more worker than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
ONCE   ?=
# Another Kubernetes for kube, e2e and core, such as v1.34.x; `ls tests/testbed/versions` lists them.
VERSION ?=
# What every supported Kubernetes must pass.
CORE := tests/e2e/test_extender_dialects.py tests/e2e/test_extender_labels.py tests/e2e/test_agent_identity.py tests/e2e/test_agent_restart.py
# The tests that run the product on a real API server; the others have none, or the embedded one,
# which is like that of the default version.
ON_KUBERNETES := tests/e2e tests/hostile tests/seeds tests/kube tests/nodeagent
# Two lanes on two cores now and then let a wait run out of time: such a test is tried once more and
# named at the end. A failed assertion is final, and so is everything in tests/hostile.
RETRY := --reruns 1 --max-suite-reruns 5 --only-rerun '^TestbedError: after [0-9]+ s ' --rerun-exclude-path tests/hostile --rerun-show-tracebacks
# The folder with the openb traces; what needs them says so where they are absent.
SLICEWISE_DATA ?= $(wildcard $(CURDIR)/../shared/data/openb)
export SLICEWISE_DATA

.DEFAULT_GOAL := help
.PHONY: help setup check native test kube e2e core seeds bench pins sbom build dist image img img-arm all manifests demo table format clean kubectl

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/ready ## make the virtual environment

$(VENV)/ready: pyproject.toml constraints.txt packages/playground/pyproject.toml tests/testbed/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Slicewise needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . --editable packages/playground --editable tests/testbed
	@touch $@

check: setup native ## lint, format, types, import directions, pins and the C libraries
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python supply/pins.py check

format: setup ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

native: setup ## build the C libraries (NVML's and CUDA's stand-ins, the limiter) and check them
	@$(MAKE) --no-print-directory -C native/nvml
	@$(BIN)/python native/nvml/checks/check.py out/native/nvml
	@$(MAKE) --no-print-directory -C native/cuda
	@$(BIN)/python native/cuda/checks/check.py out/native/cuda
	@$(MAKE) --no-print-directory -C native/limiter
	@$(BIN)/python native/limiter/checks/check.py out/native/limiter

test: setup native ## run the fast tests, and say what was skipped and covered
	@mkdir -p out
	$(BIN)/python -m slipcover --source $(CURDIR)/src/slicewise,$(CURDIR)/packages/playground/src --json --out out/coverage.json \
		-m pytest -n $(WORKERS) --dist worksteal -q
	@$(BIN)/python tests/coverage_line.py out/coverage.json

kube e2e core seeds: export SLICEWISE_KUBERNETES = $(VERSION)

kube: setup ## build the Kubernetes binaries into the cache, once; VERSION=v1.34.x another one
	@$(BIN)/slicewise-testbed build

e2e: kube ## run the tests that need a real cluster, on VERSION; never skips
	$(BIN)/pytest -q --tb=short -m cluster --cluster=require -n $(LANES) --dist loadfile $(RETRY) $(if $(VERSION),$(ON_KUBERNETES))

core: kube ## of these, those that every supported Kubernetes must pass, on VERSION
	$(BIN)/pytest -q --tb=short -m cluster --cluster=require $(RETRY) $(CORE)

seeds: kube ## try the users' documents line by line on a real cluster; ONLY=check renews a part
	SEEDS_TABLE=$(CURDIR)/docs/seeds.md $(BIN)/pytest -q -m cluster --cluster=require tests/seeds $(if $(ONLY),-k $(ONLY))

bench: setup ## measure, one JSON object a line; ONLY=prefix runs a part
	@$(BIN)/python -m bench $(ONLY)

pins: setup ## write the hashes of every pin again, as the package index lists them
	$(BIN)/python supply/pins.py renew

sbom: setup ## write a CycloneDX list of what the product runs with into dist/
	@mkdir -p dist
	$(BIN)/python supply/sbom.py > dist/slicewise.cdx.json

build: dist ## the same as make dist

dist: setup ## build wheels and source archives of product and playground into dist/
	$(BIN)/hatchling build -t sdist -t wheel -d $(CURDIR)/dist
	cd packages/playground && $(abspath $(BIN))/hatchling build -t sdist -t wheel -d $(CURDIR)/dist

image: setup ## build the image of both architectures into out/image/, with an SBOM beside each
	$(BIN)/python supply/build_image.py

img: setup ## the image for x86-64 alone
	$(BIN)/python supply/build_image.py amd64

img-arm: setup ## the image for arm64 alone
	$(BIN)/python supply/build_image.py arm64

all: image ## the same as make image

manifests: kube ## render the manifests in deploy/ from the chart
	$(BIN)/python supply/render_chart.py "$$($(BIN)/slicewise-testbed build)/helm"

kubectl: setup ## build the kubectl plugins as single files into out/kubectl/, with krew manifests
	$(BIN)/python supply/single_files.py

demo: setup ## place every system's examples on simulated nodes; ONCE=1 checks them and exits
	@$(BIN)/slicewise demo $(if $(ONCE),--once)

table: setup ## every openb trace under every policy, with the bounds
	$(BIN)/slicewise compare

clean: ## remove what the other targets made, but not the binaries of make kube
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis out dist
