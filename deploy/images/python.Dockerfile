# Jobs of the runtime `python` (MLP_K8S_IMAGE_PYTHON).
#   docker build -f deploy/images/python.Dockerfile -t REGISTRY/mlp-python:1 deploy/images
FROM python:3.11-slim
RUN pip install --no-cache-dir numpy==2.4.6 scikit-learn==1.9.1 uv==0.13.9
# Runs have a user id of their own, without a name or a home folder, and write nothing here.
USER 65534:65534
WORKDIR /workspace
