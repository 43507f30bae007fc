# `make run` and `make test` do all the set-up they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

.PHONY: run test lint bench mutants regen docs clean

# The environment of a user: the package alone.
$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# The environment of a developer: everything that `make test` and `make lint` use.
$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[report,sign]' --group dev
	touch $@

run: $(VENV)/.base
	@echo "not yet"

test: $(VENV)/.dev
	$(BIN)/python -m pytest --cov --cov-report=term
	$(BIN)/python -m coverage report --include='kvint2eval/*' --fail-under=100

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each rule of contract v2 switched off in turn: the test records must notice.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
