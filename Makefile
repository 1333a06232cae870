# Needs Python >= 3.11 and make; everything else goes into .venv.
PYTHON ?= python3
BIN    := .venv/bin
ARGS   ?=

# All tests, in parts that run beside one another, the longest first. Each is one process:
# the collector, which many tests call, walks through all the tests that a process holds.
ALONE := compiler codegen autograd tensor control_flow nn
VERSIONS ?=
PARTS := part-compiler part-others part-codegen $(VERSIONS:%=part-python-%) part-autograd \
  part-tensor part-control_flow part-nn part-doctests

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz test-python lint format bench docs dist clean parts $(PARTS)

# Tests of what differs from one version of Python to the next: instructions and frames that a trace
# reads, interrupts, threads, and the layout of objects that native code enters.
OF_PYTHON := tests/border $(addprefix tests/compiler/test_, all_or_nothing.py arguments.py \
  exits.py failures.py late_arrays.py late_numbers.py lifetime.py live_numbers.py logs.py \
  native_backwards.py native_calls.py op_by_op.py plain_calls.py plain_places.py processes.py \
  rebinding.py retracing.py threads.py trace_errors.py traces_beside_threads.py) \
  tests/runtime/test_hosts.py tests/runtime/test_threads.py tests/autograd/test_host_state.py \
  tests/optim/test_compiled_training.py

help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 13

demo: .venv/examples.stamp  ## train on handwritten digits, eager against compiled (ARGS="--eager")
	$(BIN)/python examples/digits.py $(ARGS)

test: lint       ## lint, types, tests, doctests, examples
	@$(MAKE) -j "$$(nproc 2>/dev/null || sysctl -n hw.ncpu)" --keep-going --output-sync=target parts

fuzz: .venv/test.stamp  ## 20,000 random graphs by graph, kernel interpreter and native code; more random steps
	FUZZED=20000 $(BIN)/python -m pytest -n auto -k random $(addprefix tests/, \
	  autograd codegen compiler control_flow ir)

parts: $(PARTS)  # VERSIONS="3.12 3.13": with the tests that depend on the interpreter, on these

$(ALONE:%=part-%): part-%: .venv/test.stamp
	$(BIN)/python -m pytest tests/$*

part-others: .venv/test.stamp
	$(BIN)/python -m pytest $(ALONE:%=--ignore=tests/%)

part-doctests: .venv/test.stamp
	$(BIN)/python -m pytest --doctest-modules lucid

$(VERSIONS:%=part-python-%): part-python-%: .venv-%.stamp
	timeout 900 .venv-$*/bin/python -m pytest $(OF_PYTHON)

test-python:  ## the tests that depend on the interpreter, on another one (PYTHON=python3.13)
	@$(MAKE) --no-print-directory $(OTHER).stamp
	$(OTHER)/bin/python -m pytest -n auto --dist worksteal $(OF_PYTHON)

lint: .venv/test.stamp  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/test.stamp  ## rewrite the files as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/examples.stamp  ## time training steps beside NumPy, torch and jax (ARGS="--rounds 9")
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: .venv/docs.stamp  ## the site, in build/site; a warning or a dead link is an error
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -f docs/mkdocs.yml

dist: $(BIN)/python  ## a wheel in dist, tried out alone on each supported Python that is here
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python tests/installed.py dist/*.whl

clean:           ## remove what the other targets made
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Python compiles what is imported; of all that is installed that is a small part.
QUICKLY := --quiet --disable-pip-version-check --no-compile

# One stamp per extra, or for several, `.venv/test,docs.stamp`: a change of pyproject.toml installs
# again.
.venv/%.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(QUICKLY) --editable '.[$*]'
	@touch $@

.venv/test.stamp: .venv/examples.stamp

# Another Python has an environment of its own, by its version: .venv-3.13.
OTHER = .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
.venv-%.stamp: pyproject.toml
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install $(QUICKLY) --editable '.[test]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lucid needs Python >= 3.11: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
