# Needs Python 3.11 or newer and make, nothing else.
#
#   make up     start the whole platform in the foreground; Ctrl-C stops it
#   make upgrade  bring checkout and platform to a newer version; jobs go on: docs/upgrade.md
#   make down   stop a platform that runs elsewhere on the same MLP_ROOT
#   make demo   try every part of the product on the running platform
#   make test   run the whole test suite  make test-fast  run what needs no platform, browser or training
#   make lint   run the quick checks only
#   make bench  run the benchmarks        make venv       only prepare .venv, to run the platform
#   make fuzz   send a platform 100,000 generated requests and look for answers outside the contract
#   make attack  try to break out of jobs, models and applications, and to get in from outside: docs/testing.md
#   make mutants  put faults into guarded modules and count those that the tests find: docs/testing.md
#   make mlflow      try both major releases of MLflow's client
#   make mlflow-tests SOURCE=mlflow   run MLflow's own tests, from a checkout of it
#   make frameworks  train with Hugging Face transformers, Lightning and Keras, and look at what they report
#   make sbom   list what the platform consists of, as CycloneDX  make audit  look up its known vulnerabilities
#   make storm   30 minutes of load, kills, a full disk, a jumping clock; compares all that was acknowledged
#   make scale   reconcile beside a simulated cluster of 100 nodes and 10,000 pods with 11,000 jobs
#   make lock   write requirements.lock   make venv-dev   prepare .venv with what tests need as well

PYTHON ?= python3
VENV := .venv/bin

.PHONY: up upgrade down demo test test-fast mutants lint attack bench frameworks mlflow mlflow-tests fuzz sbom audit lock venv venv-dev storm scale

# `exec`, so that it is the platform itself that make waits for and hands its signals to.
up: venv
	@exec $(VENV)/python manage.py up

# TO=v0.3.0 for that version, BACKUP=/mnt/backups takes a backup before.
upgrade:
	@exec $(PYTHON) tools/upgrade.py $(if $(TO),--to $(TO)) $(if $(BACKUP),--backup $(BACKUP))

down: venv
	@exec $(VENV)/python manage.py up --down

demo: venv
	@exec $(VENV)/python examples/demo.py

bench: venv-dev
	@exec $(VENV)/python bench/run.py

# REQUESTS=2000 sends fewer, SEED=7 others, DOORS=rest,webdav only those.
fuzz: venv-dev
	@exec $(VENV)/python bench/fuzz.py

# SCALE_RUNNING=200 SCALE_QUEUED=1000 makes it smaller.
scale: venv-dev
	@exec $(VENV)/python bench/scale.py

lint: venv-dev
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/djlint --check --lint --quiet templates

# Twice as many workers as cores: half of the time a test waits for a process, a server or a time-out.
WORKERS = -n $(shell echo $$((2 * $$(nproc) < 7 ? 2 * $$(nproc) : 7))) --dist loadfile --no-loadscope-reorder
# In a process of their own, beside the others: the browser's driver keeps an event loop in the main thread, which they
# must not meet, after Django's own checks. What they print comes last.
BROWSER := $(wildcard */tests/test_*browser*.py)
SEEN := test-artifacts/browser.txt
CHECKS = $(VENV)/python manage.py check --deploy --fail-level WARNING && $(VENV)/python manage.py makemigrations --check --dry-run

# Compiled modules are kept, whatever the environment says: hundreds of processes load the same ones.
test test-fast attack mutants: export PYTHONDONTWRITEBYTECODE :=
test: export MLP_ROOT := $(CURDIR)/test-artifacts/root
test: lint
	@mkdir -p $(dir $(SEEN)); ($(CHECKS) && exec $(VENV)/python -m pytest $(BROWSER)) >$(SEEN) 2>&1 & browser=$$!; \
	trap 'kill $$browser 2>/dev/null' EXIT; \
	$(VENV)/python -m pytest $(WORKERS) -m "not heavy_attack" --durations 40 $(addprefix --ignore=,$(BROWSER)); code=$$?; \
	wait $$browser || code=1; cat $(SEEN); exit $$code

# For the inner loop; mlp/tests/slow.py lists what it leaves out.
test-fast: export MLP_ROOT := $(CURDIR)/test-artifacts/root
test-fast: venv-dev
	@exec $(VENV)/python -m pytest $(WORKERS) -q -m "not slow and not e2e"

# mlp/tests/attacks.py lists what belongs to it.
attack: export MLP_ROOT := $(CURDIR)/test-artifacts/root
attack: venv-dev
	@$(VENV)/python -m pytest -m attack $(BROWSER); code=$$?; \
	$(VENV)/python -m pytest $(WORKERS) -m attack $(addprefix --ignore=,$(BROWSER)) || code=1; exit $$code

# MODULE=jobs.lifecycle tries one module, SAMPLE=40 as many faults of each, chosen by SEED.
mutants: export MLP_ROOT := $(CURDIR)/test-artifacts/root
mutants: venv-dev
	@exec $(VENV)/python -m tools.mutation

# Each major release of the client in an environment of its own, and a server for imports and exports.
mlflow: export MLP_ROOT := $(CURDIR)/test-artifacts/root
mlflow: export MLP_MLFLOW := $(CURDIR)/.venv-mlflow/bin/python:$(CURDIR)/.venv-mlflow2/bin/python
mlflow: export MLP_MLFLOW_SERVER := $(CURDIR)/.venv-mlflow-server/bin/python
mlflow: venv-dev
	@test -x .venv-mlflow/bin/python || $(VENV)/python -m venv .venv-mlflow
	@test -x .venv-mlflow2/bin/python || $(VENV)/python -m venv .venv-mlflow2
	@test -x .venv-mlflow-server/bin/python || $(VENV)/python -m venv .venv-mlflow-server
	@.venv-mlflow/bin/python -m pip install -q -r requirements-mlflow.txt
	@.venv-mlflow2/bin/python -m pip install -q -r requirements-mlflow2.txt
	@.venv-mlflow-server/bin/python -m pip install -q -r requirements-mlflow-server.txt
	@exec $(VENV)/python -m pytest jobs/mlflow/tests/test_clients.py jobs/mlflow/tests/test_snippets.py \
	models_app/tests/test_mlflow_server.py

# RELEASE=2.22.5 for another client.
mlflow-tests: venv-dev
	@exec $(VENV)/python bench/mlflow_tests.py $(SOURCE) $(if $(RELEASE),--release $(RELEASE))

# Large packages that nothing else needs, in an environment of their own that shares PyTorch with .venv.
frameworks: export MLP_ROOT := $(CURDIR)/test-artifacts/root
frameworks: export MLP_FRAMEWORKS := $(CURDIR)/.venv-frameworks/bin/python
frameworks: venv-dev
	@test -x $(MLP_FRAMEWORKS) || $(VENV)/python -m venv .venv-frameworks
	@shared=$$($(VENV)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "$$shared" >$$($(MLP_FRAMEWORKS) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	@$(MLP_FRAMEWORKS) -m pip install -q -r requirements-frameworks.txt
	@exec $(VENV)/python -m pytest jobs/tests/test_frameworks.py jobs/mlflow/tests/test_snippets.py

sbom: venv-dev
	@exec $(VENV)/python tools/sbom.py

audit: venv-dev
	@exec $(VENV)/python tools/audit.py

# MINUTES=10 for a shorter one, SEED=5 to repeat one.
storm: export PYTHONDONTWRITEBYTECODE :=
storm: venv-dev
	@exec $(VENV)/python -m tools.storm

lock: venv
	@$(VENV)/python tools/lock.py

# Checked each time, since the age of no file shows that the Python below .venv was upgraded.
venv:
	@$(VENV)/python tools/ready.py 2>/dev/null || $(PYTHON) tools/bootstrap.py

venv-dev:
	@$(VENV)/python tools/ready.py dev 2>/dev/null || $(PYTHON) tools/bootstrap.py dev
