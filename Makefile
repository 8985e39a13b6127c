# make demo    set-up and the main job, on built-in real text
# make test    set-up, checks and all tests
# make check   ruff, mypy --strict, import contracts
# make bench   the benchmarks (BENCH=score by default; ARGS=--quick for a short run)
# make peers   the tools that the benchmarks compare with, each in its own environment under .peers/
# make docs    write docs/cli/ from the help texts
# make clean   remove what was installed and cached

# The first Python from 3.11 on; override with `make PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := openvino,demo,sql,datasets,cloud,images,dev

BENCH ?= score
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench peers docs clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "setup: no Python 3.11 or newer found; install one, or run make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setup: making $(VENV) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv $(VENV) || { echo "setup: $(PYTHON) cannot make environments; on Debian install python3-venv" >&2; rm -rf $(VENV); exit 1; }; }
	@echo "setup: installing Setpoint with its extras ($(EXTRAS)) at the versions of constraints.txt; some minutes the first time"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@
	@echo "setup: ready; $(BIN)/setpoint --help, or: source $(BIN)/activate"

demo: setup
	$(BIN)/setpoint demo $(ARGS)

test: check
	$(BIN)/python -m pytest $(ARGS)

check: setup
	$(BIN)/ruff check --no-cache  # a cached verdict can outlive a move of modules
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python bench/$(BENCH).py $(ARGS)

peers: setup
	$(BIN)/python tools/peers.py $(ARGS)

docs: setup
	$(BIN)/python tools/helppages.py

clean:
	rm -rf $(VENV) .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
