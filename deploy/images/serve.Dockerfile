# Checks of models, and applications (MLP_K8S_IMAGE_SERVE): what a model of any of the formats needs to be loaded.
#   docker build -f deploy/images/serve.Dockerfile -t REGISTRY/mlp-serve:1 .
FROM python:3.11-slim
COPY requirements.txt /tmp/requirements.txt
# The platform's own versions, so that what loads in a check on one machine loads here too.
RUN sed '/^# tests and development/,$d' /tmp/requirements.txt > /tmp/product.txt \
    && pip install --no-cache-dir -r /tmp/product.txt && rm /tmp/*.txt
USER 65534:65534
WORKDIR /workspace
