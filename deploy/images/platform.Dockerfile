# The platform itself, as deploy/platform.yaml runs it.
#   docker build -f deploy/images/platform.Dockerfile -t REGISTRY/mlp-platform:1 .
FROM python:3.11-slim
WORKDIR /opt/mlp
COPY requirements.txt requirements.lock requirements-runs.lock ./
# PyTorch first, in its own build; the rest by the hashes of the lock files. What runs have is here, too: the platform
# looks up by it which packages of a model the image of MLP_K8S_IMAGE_SERVE lacks.
RUN pip install --no-cache-dir "$(grep ^torch== requirements.txt)" \
 && pip install --no-cache-dir --require-hashes -r requirements.lock \
 && pip install --no-cache-dir --require-hashes -r requirements-runs.lock
COPY . .
# A user with a name: some programs require one.
RUN useradd --uid 10001 --create-home platform && mkdir /mlp && chown platform /mlp && python -m compileall -q .
USER 10001:10001
ENV MLP_ROOT=/mlp MLP_HOST=0.0.0.0 MLP_RUNNER=kubernetes PYTHONUNBUFFERED=1
EXPOSE 30001 30002
CMD ["python", "manage.py", "up"]
