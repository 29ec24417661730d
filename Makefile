# purefx: two commands do everything on a machine that has Python 3.11 and make.
#
#   make demo    the main job on a real model          make bench   the table of ratios
#   make test    every check, as .ci/run calls it      make check   ruff, pyright, architecture
#   make fast    pytest of two minutes                 make format  let ruff rewrite the sources
#   make deep    the rest, and laws of new programs    make mutants mutants that no test finds (an hour)
#   make docs    the site, in build/docs               make linkcheck  its links to other sites
#   make versions  tests on each supported torch and Python
#   make house   files, lines, tokens, circles of imports, slowest tests
#   make clean   forget .venv and everything built
#
# Every target makes .venv first, when pyproject.toml or constraints.txt is newer than it.

SHELL := /bin/bash
BIN := .venv/bin
STEP := .ci/step
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$python && break; done)

# Every pip that make starts, and every pip that such a pip starts to build in isolation, sees the pins: a torch that is
# not pinned is gigabytes of CUDA libraries.  It is a URL because pip splits the value at blanks.
BLANK := $(subst ,, )
export PIP_CONSTRAINT := file://$(subst $(BLANK),%20,$(CURDIR))/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start a hundred processes, each of which would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
# The real architectures are built from their configs; nothing is ever fetched.
export HF_HUB_OFFLINE := 1

# Tests of one file share what they export and draw, so a file is run by one process: make test PARALLEL= for one in all.
# tests/conftest.py orders the files.
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test check static fast versions deep mutants audit audit-effects house bench plot docs linkcheck format clean install
.DEFAULT_GOAL := test

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "purefx needs Python 3.11 to 3.13 with venv: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || $(STEP) "make .venv with $(PYTHON)" $(PYTHON) -m venv .venv
	@$(STEP) "install purefx[laws,store,demo,dev,docs] (about a minute the first time)" \
		$(BIN)/python -m pip install -qq --progress-bar off --editable '.[laws,store,demo,dev,docs]'
	@touch $@

demo: .venv/installed
	@$(BIN)/python -m examples.demo

test: static
	@echo "== pytest"
	@$(BIN)/pytest $(PARALLEL) --junitxml=build/tests.xml $(PYTEST_ARGS)

check: static
	@echo "== architecture"
	@$(BIN)/pytest tests/architecture

static: .venv/installed
	@$(STEP) "ruff check" $(BIN)/ruff check --quiet .
	@$(STEP) "ruff format" $(BIN)/ruff format --check --quiet .
	@$(STEP) "pyright" $(BIN)/python tests/check_types.py

# Files that ask much for their time, of every layer: two minutes on two cores.
FAST := architecture doctests ir/test_communication.py ir/test_copies.py ir/test_diff.py ir/test_effects.py ir/test_provenance.py \
	ir/test_values.py text importing/test_fx.py importing/test_reading.py importing/test_signatures.py verify/test_rules.py \
	store/test_round_trip.py security/test_names.py $(addprefix transforms/test_,fuel.py \
	infer.py insert_ivals.py outline.py pipeline.py restore_names.py rules.py shared_bodies.py \
	simplify.py sizes.py split.py state.py swap.py) unflatten/test_mutation.py unflatten/test_state.py $(addprefix lowering/test_,bindings.py calling.py \
	hooks.py lower.py) regressions/test_bodies_and_calls.py regressions/test_orders.py regressions/test_values_of_shared_bodies.py \
	laws/test_oracles.py to_ep/test_signature.py

fast: .venv/installed
	@$(BIN)/pytest $(PARALLEL) -m "not models and not slow and not deep" $(addprefix tests/,$(FAST)) $(PYTEST_ARGS)

# An environment for each supported torch and Python, in build/versions: make versions ONLY="2.15 3.13" SELECT=smoke
SELECT ?= usual

versions: .venv/installed
	@$(BIN)/python -m tests.versions $(ONLY) --select $(SELECT)

# The times of tests are those of the last make test.
house: .venv/installed
	@$(BIN)/python -m tests.architecture.house
	@$(BIN)/python -m tests.architecture.budget

# The tests that make test leaves out or runs on fewer programs, then a search for broken laws: make deep MINUTES=600 DEEP_ARGS="--tier toy"
MINUTES ?= 10
DRAWING := $(shell grep -rlE --include='test_*.py' 'laws.tiers import .*\bshare\b' tests)

deep: .venv/installed
	@echo "== pytest"
	@$(BIN)/pytest $(PARALLEL) --dist worksteal --timeout 0 -m deep
	@PUREFX_MUTANTS=1,40000,120 $(BIN)/pytest -m deep tests/security/test_mutated_programs.py
	@$(BIN)/pytest $(PARALLEL) --timeout 0 --ir-profile=deep $(DRAWING)
	@$(BIN)/python -m tests.laws.deep --minutes $(MINUTES) $(DEEP_ARGS)

# Which changes of the sources no test finds: make mutants FILES="transforms/state.py"
mutants: .venv/installed
	@$(BIN)/python -m tests.mutants $(FILES)

# Are the passes of the installed torch right?  Writes docs/audit.md: half an hour; make audit ONLY="legalize_graph" prints alone.
audit: .venv/installed
	@OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.upstream.audit_passes $(ONLY)

# Runs every operator of the installed torch on drawn arguments and on torch's own samples, and compares what it did with what
# the tables of ir/effects say: half an hour.
audit-effects: .venv/installed
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.upstream.audit_effects $(ONLY)

# Prints the tables, and leaves the figures and the picture in build/.
bench: .venv/matplotlib
	@mkdir -p build && $(BIN)/python -m bench --json build/bench.json --plot build/performance.svg

# The picture of docs/performance.md, from a run of its own: minutes.
plot: .venv/matplotlib
	@$(BIN)/python -m bench --parts making growth --plot docs/performance.svg

.venv/matplotlib: .venv/installed
	@$(STEP) "install matplotlib" $(BIN)/python -m pip install -qq --progress-bar off --editable '.[laws,demo,dev,bench]'
	@touch $@

# A warning is an error, and so is a link to a page, a heading, a file or a name that is not there.
SPHINX := $(BIN)/sphinx-build -q -W --keep-going -E -a -c docs/site -d build/doctrees

docs: .venv/installed
	@rm -rf build/docs
	@$(STEP) "docs: build/docs/index.html" $(SPHINX) -b html . build/docs

# Other sites can be asked with a network only.
linkcheck: .venv/installed
	@if $(BIN)/python -c "import socket; socket.create_connection(('github.com', 443), 5)" 2>/dev/null; \
		then $(SPHINX) -b linkcheck . build/links; else echo "linkcheck: skipped, there is no network"; fi

format: .venv/installed
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
