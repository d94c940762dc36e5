# Jobs of the runtime `tf` (MLP_K8S_IMAGE_TF). `[and-cuda]` brings the CUDA libraries; leave it out without GPUs.
#   docker build -f deploy/images/tf.Dockerfile -t REGISTRY/mlp-tf:1 deploy/images
FROM python:3.11-slim
RUN pip install --no-cache-dir "tensorflow[and-cuda]==2.21.0" uv==0.13.9
USER 65534:65534
WORKDIR /workspace
