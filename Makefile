# Everything a developer runs, on a fresh machine too: each target makes the environment that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUFF_PATHS := clients detectors service tests benchmarks deploy/docker

.PHONY: demo test check soak e2e lint audit format benchmark record runbooks clean

demo: $(VENV)/.service ## the main job: a recorded run collapses, end to end, on this machine
	$(BIN)/tocsin demo

test: $(VENV)/.test ## every test
	./scripts/debian-packages
	$(BIN)/pytest

check: lint audit test ## what CI runs

soak: $(VENV)/.test ## the long form of the fault tests: a quarter of an hour of kills
	./scripts/debian-packages
	TOCSIN_SOAK=1 $(BIN)/pytest -s tests/faults

e2e: ## the integrations against the real frameworks, oldest and newest, with long runs
	./scripts/e2e --full

lint: $(VENV)/.dev ## style, types, boundaries between the parts
	$(BIN)/ruff check $(RUFF_PATHS)
	$(BIN)/ruff format --check $(RUFF_PATHS)
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(VENV)/.dev ## known vulnerabilities in what is installed
	$(BIN)/python scripts/audit

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(RUFF_PATHS)
	$(BIN)/ruff format $(RUFF_PATHS)

benchmark: $(VENV)/.dev ## the tables of docs/benchmarks.md
	$(BIN)/pip install --quiet rlwatch==0.5.1
	$(BIN)/python benchmarks/document.py

record: $(VENV)/.record ## record the training runs in tests/data/runs anew (about an hour)
	$(BIN)/python tests/data/record.py

$(VENV)/bin/python:
	./scripts/debian-packages python3-venv
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: made anew when the project's metadata change. Some sets hold others. What is never imported
# isn't compiled: that would take longer than all the rest.
HELD_dev := test service
HELD_test := service
$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[$*]'
	touch $(addprefix $(VENV)/.,$* $(HELD_$*))

runbooks: $(VENV)/.dev ## docs/runbooks anew from the rules
	$(BIN)/python scripts/runbooks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
