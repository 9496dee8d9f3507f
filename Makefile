# Every target creates .venv and installs what it needs. `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The first Python that is new enough; `make PYTHON=...` overrides.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs
BENCH := $(VENV)/.installed-bench
FORCE_FIELD := $(VENV)-force-field/.installed
JAX := $(VENV)-jax/.installed

# The same text, order and numbers on every run; one OpenMP thread a worker.
STEADY := PYTHONHASHSEED=0 OMP_NUM_THREADS=1
# Passed on to the command: make test ARGS="-k softmax -x"
ARGS ?=

.PHONY: help demo test check format accept docs bench overhead jax coverage-ops fuzz zoo force-field clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

demo: $(TEST) ## print a program with its backward, train a small transformer, compare with eager
	$(BIN)/tapeless demo $(ARGS)

test: $(TEST) ## run the tests
	$(STEADY) $(BIN)/python -m pytest -n 2 $(ARGS)

check: $(DEV) ## lint, formatting, types, doors between folders
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache --no-logo

format: $(DEV) ## fix what the linter can fix, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

accept: $(TEST) ## rewrite the goldens and the README example with today's output; the diff is the review
	$(STEADY) $(BIN)/python -m pytest tests/test_golden.py tests/test_docs.py --accept $(ARGS)

docs: $(DOCS) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(BENCH) ## measure against eager, torch.compile and JAX, 20 to 30 minutes; make bench ARGS="--full" takes hours and resumes
	$(STEADY) $(BIN)/python -m benchmarks.run $(ARGS)

overhead: $(TEST) ## measure what a compiled call costs beside its kernels
	$(STEADY) $(BIN)/python -m benchmarks.overhead $(ARGS)

jax: $(JAX) ## make the virtualenv in which `make bench` runs its JAX variant

coverage-ops: $(TEST) ## which operators have a rule, checked on all OpInfo samples; can be stopped and goes on
	$(STEADY) $(BIN)/tapeless coverage --opinfo --out docs/coverage.md $(ARGS)

fuzz: $(TEST) ## compare random programs with eager; make fuzz ARGS="--minutes 60 --seed 1"
	$(STEADY) $(BIN)/python -m tapeless.testing.fuzz --out benchmarks/results/fuzz.md $(ARGS)

zoo: $(TEST) ## train one step of many model architectures, compare with eager
	$(STEADY) $(BIN)/python -m benchmarks.zoo $(ARGS)

force-field: $(FORCE_FIELD) ## train a force field from PyPI, compare with eager at every step
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENV)-force-field/bin/python -m benchmarks.force_field $(ARGS)

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) $(VENV)-force-field $(VENV)-jax site build .pytest_cache .ruff_cache .hypothesis src/*.egg-info

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(TEST): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@

$(DEV): $(TEST)
	$(PIP) -e '.[dev]'
	@touch $@

$(BENCH): $(TEST)
	$(PIP) -e '.[bench]'
	@touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

# A virtualenv of its own, which sees what .venv has: nothing that MACE wants can replace the torch that is tested.
$(FORCE_FIELD): benchmarks/force_field.txt $(TEST)
	$(PYTHON) -m venv $(VENV)-force-field
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(VENV)-force-field/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	$(VENV)-force-field/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $<
	@touch $@

$(JAX): benchmarks/jax.txt
	$(PYTHON) -m venv $(VENV)-jax
	$(VENV)-jax/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $<
	@touch $@
