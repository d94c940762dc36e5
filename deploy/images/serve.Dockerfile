# Model checks and applications (MLP_K8S_IMAGE_SERVE): what it takes to load a model of any of the formats.
#   docker build -f deploy/images/serve.Dockerfile -t REGISTRY/mlp-serve:1 .
FROM python:3.11-slim
COPY requirements-runs.txt requirements-runs.lock /tmp/
# The versions that runs have on one machine, so that a model that loads there loads here too.
RUN pip install --no-cache-dir "$(grep ^torch== /tmp/requirements-runs.txt)" \
 && pip install --no-cache-dir --require-hashes -r /tmp/requirements-runs.lock && rm /tmp/requirements-runs.*
USER 65534:65534
WORKDIR /workspace
