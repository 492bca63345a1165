# `make demo` and `make test` each set up what they need: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint unit wheel-test network-test network-test-short reproduce-check lock docs figures bench-phase1 bench-phase2 clean

demo: $(READY)
	$(BIN)/koncord demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/pytest -n 2

wheel-test: $(READY) ## the bare wheel in an empty environment: help, demo, fit, and what needs an extra says so
	$(BIN)/python scripts/check_wheel.py

network-test: $(READY) ## a coordinator and sites as processes of their own: TLS, faults, refusals, namespaces
	$(BIN)/pytest -m network tests/network

network-test-short: $(READY) ## the part of it that CI runs
	$(BIN)/pytest -m network tests/network/test_short.py

reproduce-check: $(READY) ## is docs/reproduction.md what the stored rows say? `make unit` asks the same
	$(BIN)/python scripts/reproduction_page.py --check

$(READY): requirements/dev.txt pyproject.toml reproduction/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "koncord needs Python 3.11 or newer; say which with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./reproduction
	@touch $@

lock: ## newest versions of what requirements/dev.in asks for
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --no-header --strip-extras --no-emit-find-links --no-emit-index-url --upgrade --allow-unsafe --output-file requirements/dev.txt requirements/dev.in

figures: $(READY)
	$(BIN)/python scripts/theory_figures.py

bench-phase1 bench-phase2: bench-%: $(READY)
	$(BIN)/python benchmarks/$*.py

docs: $(READY) ## pages made from the code itself
	$(BIN)/python scripts/cli_docs.py

clean:
	rm -rf $(VENV) build dist koncord-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
