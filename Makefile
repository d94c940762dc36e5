# Needs Python 3.11 or newer and make, nothing else.
#
#   make up     the whole platform, in the foreground; Ctrl-C ends it in order
#   make down   ends a platform that runs elsewhere on the same MLP_ROOT
#   make demo   walks the product against the running platform
#   make test   the whole test suite      make lint   only the quick checks
#   make bench  the benchmarks            make venv   only .venv

PYTHON ?= python3
VENV := .venv/bin

.PHONY: up down demo test lint bench venv

# `exec`, so that it is the platform itself that make waits for and hands its signals to.
up: venv
	@exec $(VENV)/python manage.py up

down: venv
	@exec $(VENV)/python manage.py up --down

demo: venv
	@exec $(VENV)/python examples/demo.py

bench: venv
	@exec $(VENV)/python bench/run.py

lint: venv
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .

# In a process of their own, beside the others: the browser's driver keeps an event loop in the main thread, which they
# must not meet. What it prints comes last.
BROWSER := $(wildcard */tests/test_*browser*.py)
SEEN := test-artifacts/browser.txt

test: export MLP_ROOT := $(CURDIR)/test-artifacts/root
test: lint
	@$(VENV)/python manage.py check --deploy --fail-level WARNING
	@$(VENV)/python manage.py makemigrations --check --dry-run
	@mkdir -p $(dir $(SEEN)); $(VENV)/python -m pytest $(BROWSER) >$(SEEN) 2>&1 & browser=$$!; \
	trap 'kill $$browser 2>/dev/null' EXIT; \
	$(VENV)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(BROWSER)); code=$$?; \
	wait $$browser || code=1; cat $(SEEN); exit $$code

# Asked each time, since no file's age tells that the Python below .venv was upgraded.
venv:
	@$(VENV)/python tools/ready.py 2>/dev/null || $(PYTHON) tools/bootstrap.py
