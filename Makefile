# The commands that people and scripts rely on. `make help` lists them.
#
#   TORCH_BACKEND  where torch comes from: `cpu` (default: PyTorch's own index of CPU builds, about
#                  200 MB), `default` (the configured package index, whose build brings CUDA: about
#                  3 GB), `auto` (what fits the GPU of this machine), or cu130 and the like. Where
#                  the index of CPU builds cannot be reached, the configured one is used and said.
#   TORCH_INDEX    or name the index itself, for instance an internal mirror of the CPU builds.
#   PYTHON         the interpreter the virtual environment is made from (3.11 or newer).

PYTHON ?= python3
TORCH_BACKEND ?= cpu
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9

RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready

.DEFAULT_GOAL := help
.PHONY: help install install-run demo test lint format lock clean

help:
	@echo "make demo      set everything up and speak on this machine (TEXT=file RECORD=out.mp4: batch)"
	@echo "make test      set everything up and run all tests"
	@echo "make install   the virtual environment with everything, tools and tests included"
	@echo "make lint      ruff, strict types, layers"
	@echo "make bench     measure (OUT=build/bench.json)"

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making the virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(RUN_READY): requirements/run.lock pyproject.toml deploy/install.sh | $(BIN)/uv
	@TORCH_BACKEND="$(TORCH_BACKEND)" TORCH_INDEX="$(TORCH_INDEX)" sh deploy/install.sh $(VENV) requirements/run.lock
	@touch $@

$(DEV_READY): requirements/dev.lock pyproject.toml deploy/install.sh | $(BIN)/uv
	@TORCH_BACKEND="$(TORCH_BACKEND)" TORCH_INDEX="$(TORCH_INDEX)" sh deploy/install.sh $(VENV) requirements/dev.lock
	@touch $@ $(RUN_READY)

install: $(DEV_READY)
install-run: $(RUN_READY)

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
