# Model checks and applications (MLP_K8S_IMAGE_SERVE): what it takes to load a model of any of the formats.
#   docker build -f deploy/images/serve.Dockerfile -t REGISTRY/mlp-serve:1 .
FROM python:3.11-slim
COPY requirements.txt requirements.lock /tmp/
# The platform's own versions, so that a model that loads on the platform's machine loads here too.
RUN pip install --no-cache-dir "$(grep ^torch== /tmp/requirements.txt)" \
 && pip install --no-cache-dir --require-hashes -r /tmp/requirements.lock && rm /tmp/requirements.*
USER 65534:65534
WORKDIR /workspace
