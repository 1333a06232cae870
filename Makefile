# Needs Python >= 3.11 and make; everything else goes into .venv.
PYTHON ?= python3
BIN    := .venv/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench clean

help:            ## this list
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 10

demo: .venv/examples.stamp  ## train on handwritten digits, eager against compiled (ARGS="--eager")
	$(BIN)/python examples/digits.py $(ARGS)

test: lint       ## lint, types, tests, doctests, examples
	$(BIN)/python -m pytest -n auto
	$(BIN)/python -m pytest --doctest-modules lucid

lint: .venv/test.stamp  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/test.stamp  ## rewrite the files as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/examples.stamp  ## time training steps beside NumPy, torch and jax (ARGS="--rounds 9")
	$(BIN)/python benchmarks/run.py $(ARGS)

clean:           ## remove what the other targets made
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per extra: a change of pyproject.toml installs again.
.venv/%.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.venv/test.stamp: .venv/examples.stamp

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lucid needs Python >= 3.11: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
