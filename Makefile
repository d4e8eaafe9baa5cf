# Every target sets itself up: the first one run makes .venv and installs the versions of constraints.txt.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help test quick demo format lint docs bench clean

# The interpreter that makes .venv: `make test BASE_PYTHON=python3.12` takes another one.
BASE_PYTHON ?= python3
# Arguments of pytest: `make test PYTEST_FLAGS="-k regression -x"`.
PYTEST_FLAGS ?=

VENV := .venv
PYTHON := $(VENV)/bin/python
# Modules are compiled when they are first imported: most never are, and all would take half a minute.
INSTALL := $(PYTHON) -m pip install --quiet --no-compile --constraint constraints.txt

# The caller's environment stays outside.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{ printf "%-15s%s\n", $$1, $$2 }'

# A process for each core, with one thread each: the tests' tensors are small, and threads that wait
# for each other cost more than they do. Neighbours stay together (worksteal), and share fixtures.
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest --numprocesses auto --dist worksteal

test: lint ## check format, lint and types, and run all tests
	$(PYTEST) $(PYTEST_FLAGS)

quick: $(VENV)/installed ## run the fast tests only, without the checks of format, lint and types
	$(PYTEST) -m "not slow" $(PYTEST_FLAGS)

demo: $(VENV)/installed ## train on an embedded table, evaluate, write a report
	$(PYTHON) -m lastlayer demo

format: $(VENV)/installed ## format the code and repair what the linter can
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint: $(VENV)/installed ## check format, lint and types
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

docs: $(VENV)/installed ## build the site of documentation, strictly, into build/site
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

bench: $(VENV)/installed-peers ## measure speed and memory, and estimators for tables, beside peers
	$(PYTHON) benchmarks/heads.py
	$(PYTHON) benchmarks/estimators.py

clean: ## remove .venv, caches and generated files
	rm -rf $(VENV) build dist demo-output choosing-output .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch first and pinned: a range would fetch a newer one, with gigabytes of GPU libraries.
# hatchling builds the project (with editables, as an editable install) from the same pins,
# hence no build isolation, which would fetch the newest.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "lastlayer needs Python 3.10 or newer as $(BASE_PYTHON); name another: make BASE_PYTHON=python3.12 ..." >&2; exit 1; }
	@$(BASE_PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(BASE_PYTHON) cannot make virtual environments (no ensurepip); on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV)"
	@$(BASE_PYTHON) -m venv $(VENV)
	@echo "Installing torch (the largest part: a minute or more)"
	@$(INSTALL) torch
	@echo "Installing lastlayer and the development tools"
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

$(VENV)/installed-peers: $(VENV)/installed
	@echo "Installing the packages to compare with"
	@$(INSTALL) --no-build-isolation --editable '.[peers]'
	@touch $@
