# `make demo` and `make test` each set up what they need: Python 3.11 or newer and make are enough. All share one
# environment: the demo needs koncord alone (.base), the rest what a developer needs (.ready), the pages theirs (.docs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --quiet --no-header --strip-extras --no-emit-find-links --no-emit-index-url

.PHONY: demo test gate lint unit wheel-test lowest-test network-test network-test-short reproduce-check lock docs screenshots clean

demo: $(BASE) ## the main job on built-in data, with its report
	$(BIN)/koncord demo

test: lint unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(BIN)/pytest -n 2 --junitxml build/tests.xml

PART ?= quick
gate: $(READY) ## better or worse than before? PART=full for all of it; ARGS=--update stores the figures
	$(BIN)/python -m gate $(PART) $(ARGS)

wheel-test: $(READY) ## the bare wheel in an empty environment: help, demo, fit, and what needs an extra says so
	$(BIN)/python scripts/check_wheel.py

LOWEST := tests/kernels tests/model tests/data/test_files.py tests/data/test_islands.py tests/estimate/test_kmeans.py \
	tests/protocol tests/session/test_demonstration.py tests/test_clustering.py tests/test_fit_files.py
lowest-test: $(READY) ## the oldest versions that pyproject.toml allows
	$(PIP) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct . \
		'pytest>=8' 'hypothesis>=6.100' 'pandas>=2.2.2' 'pyyaml>=6.0.2'
	build/lowest/bin/python -m pytest -q -W ignore $(LOWEST)

network-test: $(READY) ## a coordinator and sites as processes of their own: TLS, faults, refusals, namespaces
	$(BIN)/pytest -m network tests/network tests/test_docs.py

network-test-short: $(READY) ## the part of it that CI runs
	$(BIN)/pytest -m network tests/network/test_short.py

reproduce-check: $(READY) ## is reproduction/docs/reproduction.md what the stored rows say? `make unit` asks the same
	$(BIN)/python reproduction/scripts/reproduction_page.py --check

# Modules are compiled when they are first imported: most never are.
$(BASE): requirements/base.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "koncord needs Python 3.11 or newer; say which with: make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --requirement requirements/base.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): $(BASE) requirements/dev.txt reproduction/pyproject.toml
	$(PIP) --requirement requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation --editable . --editable ./reproduction
	@touch $@

$(DOCS): $(READY) requirements/docs.txt
	$(PIP) --requirement requirements/docs.txt
	@touch $@

lock: $(READY) ## newest versions of what the files in requirements/ ask for
	$(PIP) uv
	cd requirements && ../$(COMPILE) --upgrade --output-file dev.txt dev.in
	cd requirements && ../$(COMPILE) --upgrade --output-file base.txt base.in
	cd requirements && ../$(COMPILE) --upgrade --output-file docs.txt docs.in

docs: $(DOCS) ## the documentation site, build/docs/index.html: warnings are errors, every link and load is checked
	$(BIN)/python scripts/cli_docs.py
	$(BIN)/python scripts/build_docs.py

screenshots: $(DOCS) ## the pictures of the README and the pages, with Chromium
	$(BIN)/python scripts/screenshots.py

clean:
	rm -rf $(VENV) build dist koncord-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
