# One list of developer commands. Everything is set up on first use and reused after.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) || command -v python3)
VENV   := .venv
CORE   := .venv-core
PIP     = -m pip --disable-pip-version-check --quiet

.PHONY: help setup browser postgresql demo test test-other-pythons check format bench paper clean

help:            ## This list
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(CORE)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python $(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(VENV)/ready   ## A virtual environment with everything for development

# A build machine gets Debian's; elsewhere playwright brings its own.
browser: $(VENV)/ready   ## A headless Chromium for the tests of pages, which are skipped without
	@$(VENV)/bin/python -m tests.browser || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends chromium-headless-shell; } \
	  || $(VENV)/bin/playwright install --with-deps chromium-headless-shell

postgresql: $(VENV)/ready   ## PostgreSQL for the tests of stores, which are skipped without
	@$(VENV)/bin/python -m tests.postgresql || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends postgresql; }

demo: $(CORE)/ready    ## Set up only the core and run the main job on this machine
	@$(CORE)/bin/zeus demo

test: $(VENV)/ready    ## Run all tests
	$(VENV)/bin/python -m pytest -n auto $(PYTEST_ARGS)

# Those of them that are installed here. A name on the path may be pyenv's, which runs nothing where
# another version is chosen.
OTHER_PYTHONS ?= 3.12 3.13
PYENV_ROOT    ?= $(HOME)/.pyenv
python = $(shell for it in python$(1) $(PYENV_ROOT)/versions/$(1).*/bin/python; do \
  "$$it" -c '' 2>/dev/null && echo "$$it" && break; done)
# Pure ones: no framework, browser or database, and few processes of their own.
QUICK := drawing frontier monitor replay state store testing transport \
  $(addprefix optimizer/,batch_size/job batch_size/policies pipeline_frequency training) \
  test_clock.py test_front_door.py test_house.py test_rules.py

test-other-pythons: $(OTHER_PYTHONS:%=test-%)   ## Run quick tests with other Pythons, where installed

test-3.%:
	@if [ -z "$(call python,3.$*)" ]; then echo "Python 3.$* is not installed: not tested"; else \
	  $(MAKE) --no-print-directory .venv-3.$*/ready && .venv-3.$*/bin/python -m pytest -n auto \
	  -m 'not slow and not real_time' $(QUICK:%=tests/%) $(PYTEST_ARGS); fi

.venv-3.%/ready: pyproject.toml constraints.txt
	$(call python,3.$*) -m venv .venv-3.$*
	.venv-3.$*/bin/python $(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@

check: $(VENV)/ready   ## Linter, formatter, type checker, boundaries between the rooms
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/ready  ## Put the code into the project's form
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/ready   ## Measure ourselves beside our peers; prints JSON
	$(VENV)/bin/python benchmarks/run.py $(BENCH_ARGS)

paper: $(VENV)/ready   ## Recompute the Zeus paper's figures; PAPER_ARGS="--only figure-4 --output DIR"
	$(VENV)/bin/python -m paper $(PAPER_ARGS)

clean:           ## Remove the virtual environments and caches
	rm -rf $(VENV) $(CORE) .venv-peers .venv-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
