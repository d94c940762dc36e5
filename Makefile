# Needs Python 3.11 or newer and make, nothing else.
#
#   make up     start the whole platform in the foreground; Ctrl-C stops it
#   make upgrade  bring checkout and platform to a newer version; jobs go on: docs/upgrade.md
#   make down   stop a platform that runs elsewhere on the same MLP_ROOT
#   make demo   try every part of the product on the running platform
#   make test   prove the product           make test-long  prove what takes minutes: storms, restores, old releases
#   make test-fast  run the tests that need no platform, browser or training
#   make lint   run the quick checks only
#   make bench  run the benchmarks        make venv       only prepare .runs-venv and .venv, to run the platform
#   make fuzz   send a platform 100,000 generated requests and look for answers outside the contract
#   make attack  try to break out of jobs, models and applications, and to get in from outside: docs/testing.md
#   make mutants  put faults into guarded modules and count those that the tests find: docs/testing.md
#   make mlflow      try both major releases of MLflow's client
#   make mlflow-tests SOURCE=mlflow   run MLflow's own tests, from a checkout of it
#   make frameworks  train with Hugging Face transformers, Lightning and Keras, look at what they report, and serve a
#                    language model
#   make sbom   list what the platform consists of, as CycloneDX  make audit  look up its known vulnerabilities
#   make storm   30 minutes of load, kills, a full disk, a jumping clock; compares all that was acknowledged
#   make scale   reconcile beside a simulated cluster of 100 nodes and 10,000 pods with 11,000 jobs
#   make lock   write the lock files      make venv-dev   prepare .venv with what tests need as well

PYTHON ?= python3
VENV := .venv/bin

.PHONY: up upgrade down demo test test-long test-fast mutants lint attack bench frameworks mlflow mlflow-tests fuzz sbom audit outdated lock venv venv-dev storm scale

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

# REQUESTS=2000 sends fewer, SEED=7 others, INTERFACES=rest,webdav only those.
fuzz: venv-dev
	@exec $(VENV)/python bench/fuzz.py

# SCALE_RUNNING=200 SCALE_QUEUED=1000 makes it smaller.
scale: venv-dev
	@exec $(VENV)/python bench/scale.py

lint: venv-dev
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/djlint --check --lint --quiet templates

# Compiled modules are kept, whatever the environment says: hundreds of processes load the same ones.
test test-long test-fast attack mutants: export PYTHONDONTWRITEBYTECODE :=
test test-long test-fast attack: export MLP_ROOT := $(CURDIR)/test-artifacts/root
SUITE = $(VENV)/python -m tools.suite $(if $(SEED),--seed $(SEED))

# SEED=7 runs files, and the tests in each, in the random order of that seed.
test: lint
	@exec $(SUITE) --mark "not long and not heavy_attack"

# What takes minutes by its nature: before a release, and before a large change is called finished.
test-long: venv-dev
	@exec $(SUITE) --mark "long and not heavy_attack"

# For the inner loop; mlp/tests/slow.py lists what it leaves out.
test-fast: venv-dev
	@exec $(SUITE) --mark "not slow and not e2e and not long" --without-browser

# mlp/tests/attacks.py lists what belongs to it.
attack: venv-dev
	@exec $(SUITE) --mark attack

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
	@exec $(VENV)/python -m pytest tracking/mlflow/tests/test_clients.py tracking/mlflow/tests/test_snippets.py \
	models_app/tests/test_mlflow_server.py models_app/tests/test_registry_clients.py apps/tests/test_python_models.py \
	tracking/traces/tests/test_traces_clients.py tracking/evaluations/tests/test_evaluation_clients.py

# RELEASE=2.22.5 for another client.
mlflow-tests: venv-dev
	@exec $(VENV)/python bench/mlflow_tests.py $(SOURCE) $(if $(RELEASE),--release $(RELEASE))

# Large packages that nothing else needs, in an environment of their own that shares PyTorch with .runs-venv.
frameworks: export MLP_ROOT := $(CURDIR)/test-artifacts/root
frameworks: export MLP_FRAMEWORKS := $(CURDIR)/.venv-frameworks/bin/python
frameworks: venv-dev
	@test -x $(MLP_FRAMEWORKS) || .runs-venv/bin/python -m venv .venv-frameworks
	@shared=$$(.runs-venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "$$shared" >$$($(MLP_FRAMEWORKS) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	@$(MLP_FRAMEWORKS) -m pip install -q -r requirements-frameworks.txt
	@exec $(VENV)/python -m pytest jobs/tests/test_frameworks.py tracking/mlflow/tests/test_snippets.py \
		apps/tests/test_language_frameworks.py apps/tests/test_language_engines.py

sbom: venv-dev
	@exec $(VENV)/python tools/sbom.py

audit: venv-dev
	@exec $(VENV)/python tools/audit.py

# docs/dependencies.md says which updates are taken when.
outdated: venv-dev
	@for venv in .runs-venv .venv; do echo $$venv:; $$venv/bin/python -m pip list --outdated --local --disable-pip-version-check; done

# MINUTES=10 for a shorter one, SEED=5 to repeat one.
storm: export PYTHONDONTWRITEBYTECODE :=
storm: venv-dev
	@exec $(VENV)/python -m tools.storm

# PyTorch is left out: it has other files, and other hashes, for each build. UPGRADE=1 takes the newest versions of what
# the requirements do not pin; without it the lock files' own stay where they fit. What is in both has one version.
EXTRAS := requirements-kafka.txt requirements-ldap.txt requirements-opensearch.txt requirements-s3.txt
COMPILE = $(or $(shell command -v uv),.runs-venv/bin/uv) pip compile - --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate $(if $(UPGRADE),--upgrade)
lock: venv
	@grep -hv '^torch==' requirements.txt $(EXTRAS) | $(COMPILE) --output-file requirements.lock
	@grep -hv '^torch==' requirements-runs.txt | $(COMPILE) --constraint requirements.lock --output-file requirements-runs.lock
	@for file in requirements.lock requirements-runs.lock; do \
	case $$file in *-runs*) who='runs have' ;; *) who='the platform runs with' ;; esac; sed -i \
	-e "1i # Every package that $$who, except PyTorch, with the hashes of its files. Written by \`make lock\`." \
	-e "1i # Install PyTorch in the build that fits the machine first, then: pip install --require-hashes -r $$file" \
	$$file; done

# Checked each time, since the age of no file shows that the Python below .venv was upgraded. .venv builds on .runs-venv.
venv:
	@$(VENV)/python tools/ready.py 2>/dev/null || $(PYTHON) tools/bootstrap.py

venv-dev:
	@$(VENV)/python tools/ready.py dev 2>/dev/null || $(PYTHON) tools/bootstrap.py dev
