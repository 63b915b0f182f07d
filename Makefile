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

# The packages as they are in an image, in a folder of their own: what is in the tree always runs
# from its source. PYTHONSAFEPATH keeps the folder that a command is given in from coming first.
COMPILED := build/compiled
WITH_COMPILED := PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/$(COMPILED):$(CURDIR)
PACKAGES := controller dhsched dispatch gpu_stages hosting ownership rtc_output schemas stream

.DEFAULT_GOAL := help
.PHONY: help install install-run demo test test-chaos test-sim test-compiled lint format lock simulate \
  chaos bench bench-gpu compile clean

help:
	@echo "make demo      set everything up and speak on this machine (TEXT=file RECORD=out.mp4: batch)"
	@echo "make test      set everything up and run all tests"
	@echo "make install   the virtual environment with everything, tools and tests included"
	@echo "make compile   the packages as an image has them, the core compiled, in $(COMPILED)"
	@echo "make lint      ruff, strict types, layers"
	@echo "make bench     measure (OUT=build/bench.json)"
	@echo "make bench-gpu measure on a GPU (OUT=build/bench-gpu.json); status 77 where none is"
	@echo "make simulate  try to break the protocol (RUNS=, SEED=, PROTOCOL=, OUT=build/simulate.json)"
	@echo "make chaos     try to break real processes (MINUTES=, SEED=, OUT=build/chaos.json)"

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

$(COMPILED)/.ready: $(DEV_READY) pyproject.toml setup.py $(shell find $(PACKAGES) -type f -not -name '*.pyc')
	@command -v $${CC:-cc} >/dev/null || \
	  { echo "A C compiler is missing: apt install gcc libc6-dev python3-dev" >&2; exit 1; }
	@echo "Compiling the core ..."
	@rm -rf build/lib.* build/temp.* build/bdist.* build/mypyc build/wheel $(COMPILED)
	@mkdir -p build
	@DHSCHED_COMPILE=1 $(BIN)/uv build --python $(BIN)/python --wheel --no-build-isolation -o build/wheel . \
	  >build/compile.log 2>&1 || { cat build/compile.log >&2; exit 1; }
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(COMPILED) build/wheel/*.whl
	@touch $@

compile: $(COMPILED)/.ready

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The tests start hundreds of processes: what one compiled, the next need not compile again.
test: export PYTHONDONTWRITEBYTECODE :=

# The simulator's tests only compute and know no time but their own, and those under faults mostly
# wait: both at once, the former with what the latter leaves of the machine. What each printed comes
# in one piece when it has ended, and it takes both to succeed.
test: $(DEV_READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-chaos test-sim
	@$(MAKE) --no-print-directory test-compiled

# Real processes run what an image runs.
PYTEST_COMPILED := $(WITH_COMPILED) DHSCHED_REQUIRE_COMPILED=1 $(BIN)/python -m pytest -o "pythonpath=$(COMPILED) ."

test-chaos: compile
	$(PYTEST_COMPILED) tests/chaos

test-compiled: compile
	$(PYTEST_COMPILED) tests/compiled
	$(PYTEST_COMPILED) tests/unit/controller tests/unit/schemas \
	  $(foreach what,auto_create custody faults moves paced speaks,tests/integration/test_controller_$(what).py)

test-sim:
	nice -n 10 $(BIN)/python -m pytest tests/sim

# demo speaks on this machine; with RECORD=out.mp4 (and TEXT=file) it records and ends by itself.
demo: $(RUN_READY)
	@$(BIN)/dhsched demo $(if $(TEXT),--text "$(TEXT)") $(if $(RECORD),--record "$(RECORD)") $(DEMO_ARGS)

# simulate runs the protocol, weaker ones and mutants of it in seeded worlds (about a quarter of an
# hour on two cores). A seed that failed is shown by PROTOCOL=generation RUNS=1 SEED=that.
simulate: $(DEV_READY)
	@$(BIN)/python -m tests.sim --runs $(or $(RUNS),100000) --seed $(or $(SEED),1) \
	  --protocol $(or $(PROTOCOL),all) --out $(or $(OUT),build/simulate.json) \
	  $(if $(MARKDOWN),--markdown $(MARKDOWN)) $(SIMULATE_ARGS)

# chaos kills, stops and cuts off real processes on Apache Kafka, and judges what they did by the
# simulator's checkers. FDB_CLUSTER_FILE chooses FoundationDB instead of LMDB.
chaos: compile
	@$(WITH_COMPILED) $(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) \
	  --out $(or $(OUT),build/chaos.json) $(if $(MARKDOWN),--markdown $(MARKDOWN)) $(CHAOS_ARGS)

bench: compile
	$(WITH_COMPILED) $(BIN)/python -m tests.bench --out $(or $(OUT),build/bench.json) $(if $(MARKDOWN),--markdown $(MARKDOWN))

# bench-gpu ends with status 77 where no GPU is: nothing was measured then.
bench-gpu: $(DEV_READY)
	@$(BIN)/python -m tests.bench.gpu --out $(or $(OUT),build/bench-gpu.json) $(if $(MARKDOWN),--markdown $(MARKDOWN))

# Everything that torch brings along besides itself comes with it from whichever index it is taken.
NOT_LOCKED := torch triton setuptools cuda-bindings cuda-pathfinder cuda-toolkit $(shell \
  test -x $(BIN)/uv && $(BIN)/uv pip list --python $(BIN)/python 2>/dev/null | awk '/^nvidia-/{print $$1}')
COMPILE = $(BIN)/uv pip compile --python-version 3.11 --quiet --no-header --generate-hashes \
  --no-emit-index-url --no-annotate $(addprefix --no-emit-package ,$(NOT_LOCKED)) $(LOCK_ARGS)
lock: | $(BIN)/uv
	$(COMPILE) pyproject.toml --extra one-machine -o requirements/run.lock
	$(COMPILE) pyproject.toml --extra one-machine --extra dev -o requirements/dev.lock
	$(COMPILE) --group bench -o requirements/bench.lock

clean:
	rm -rf build .pytest_cache .ruff_cache .dhsched
