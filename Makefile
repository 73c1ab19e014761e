# Everything a user or CI needs. `make help` lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz test-slow cluster-test lint format lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## make the virtual environment in .venv with the locked dependencies

$(READY): constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unisono needs Python 3.11 or newer; call make PYTHON=/path/to/python3.11")'
	rm -f $(READY)
	$(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) (a minute or two) ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/unisono warm
	@touch $(READY)

demo: setup ## run the main job: bare bus against total order, simulated, audited by Spark
	$(BIN)/unisono demo

test: setup ## lint, types and the tests; ROOM=qos: of one package or file; SHUFFLE=7: in a random order
	UNISONO_SHUFFLE=$(SHUFFLE) $(BIN)/python tests/check.py $(ROOM)

fuzz: setup ## random seeds for properties, the simulator and parsers, for MINUTES=10
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)

test-slow: setup ## what takes long: 20,000 seeds of every scenario of total order, all examples, big traces (hours)
	UNISONO_PROFILE=long $(BIN)/python -m pytest -m "slow or seeded or hypothesis"
	$(BIN)/unisono sim scenarios/total-order/*.toml --seeds 0:20000
	$(BIN)/unisono sim scenarios/log/*.toml --seeds 0:10000

cluster-test: setup ## audits, sweeps and streams on a Spark cluster of real processes, with workers killed
	$(BIN)/python -m pytest -m "slow or not slow" tests/cluster

lint: setup ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## resolve the dependencies anew into constraints.txt
	@# --build-deps-for: without it the conditions of optional dependencies (; sys_platform ...) are lost
	$(BIN)/pip-compile --quiet --all-extras --build-deps-for wheel --generate-hashes --allow-unsafe --strip-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate \
	  --output-file constraints.txt pyproject.toml

clean: ## remove what was built or run
	rm -rf $(VENV) runs build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
