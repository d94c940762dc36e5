# Jobs of the runtime `torch` (MLP_K8S_IMAGE_TORCH), with or without GPUs: the wheels bring the CUDA libraries, the node
# brings the driver. Also the trainings of AIOps.
#   docker build -f deploy/images/torch.Dockerfile -t REGISTRY/mlp-torch:1 deploy/images
FROM python:3.11-slim
RUN pip install --no-cache-dir torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1 uv==0.13.9
USER 65534:65534
WORKDIR /workspace
