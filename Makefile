# Every command first sets up what it needs; a clean machine with Python 3.11+ and make is enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo demo-payments test check bench clean

setup: $(READY)

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[postgres,server,kafka,webhook,pipelines,encryption,otel]" --group dev
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/demo.py

demo-payments: $(READY)
	@$(BIN)/python examples/csv_payments/demo.py

# Tests start bide in hundreds of processes: its modules are compiled once, whatever the environment says of that.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	@$(BIN)/python -m pytest -n auto --dist worksteal

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)
	@$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
