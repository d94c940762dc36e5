"""The validation of the fake API server: unknown fields, illegal names and labels, immutable fields, invalid pods."""

from __future__ import annotations

import base64
import binascii
import re

from kubernetes import client
from kubernetes.utils.quantity import parse_quantity
from pydantic import ValidationError

MODELS = {
    "jobs": client.V1Job,
    "deployments": client.V1Deployment,
    "replicasets": client.V1ReplicaSet,
    "pods": client.V1Pod,
    "secrets": client.V1Secret,
    "services": client.V1Service,
    "ingresses": client.V1Ingress,
    "networkpolicies": client.V1NetworkPolicy,
    "configmaps": client.V1ConfigMap,
}
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
DNS_1035 = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
FIXED = {"jobs": ("selector", "template", "completions", "completionMode"), "deployments": ("selector",)}


class Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str):
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def invalid(what: str) -> Refusal:
    return Refusal(422, "Invalid", what)


def need(truth: object, what: str) -> None:
    if not truth:
        raise invalid(what)


def validate(resource: str, body: dict, before: dict | None = None) -> None:
    model = MODELS.get(resource)
    if model:
        try:
            model.model_validate(body)
        except ValidationError as error:
            raise Refusal(400, "BadRequest", f"strict decoding error: {error}") from error
    meta = body.get("metadata") or {}
    name = meta.get("name") or ""
    longest = {"jobs": 63, "services": 63}.get(resource, 253)
    need(SUBDOMAIN.fullmatch(name) and len(name) <= longest, f"metadata.name: {name!r}")
    need(resource != "services" or DNS_1035.fullmatch(name), f"metadata.name: {name!r} must be a DNS-1035 label")
    labels(meta.get("labels") or {}, "metadata.labels")
    for key in meta.get("annotations") or {}:
        qualified(key, "metadata.annotations")
    size = sum(len(key) + len(value) for key, value in (meta.get("annotations") or {}).items())
    need(size <= 256 << 10, "metadata.annotations: too long")
    for owner in meta.get("ownerReferences") or []:
        need(all(owner.get(key) for key in ("apiVersion", "kind", "name", "uid")), "metadata.ownerReferences")
    if before:
        for key in FIXED.get(resource, ()):
            need(body["spec"].get(key) == before["spec"].get(key), f"spec.{key}: field is immutable")
    check = {"jobs": job, "deployments": deployment, "pods": pod, "secrets": secret, "ingresses": ingress}
    check.get(resource, lambda body: None)(body)


def qualified(key: str, where: str) -> None:
    prefix, _, name = key.rpartition("/")
    need(LABEL_NAME.fullmatch(name) and (not prefix or SUBDOMAIN.fullmatch(prefix)), f"{where}: {key!r}")


def labels(given: dict, where: str) -> None:
    for key, value in given.items():
        qualified(key, where)
        need(value == "" or LABEL_NAME.fullmatch(value), f"{where}: {value!r}")


def job(body: dict) -> None:
    spec = body["spec"]
    template = spec["template"]
    need(template["spec"].get("restartPolicy") in {"Never", "OnFailure"}, "spec.template.spec.restartPolicy")
    indexed = spec.get("completionMode") == "Indexed"
    need(not indexed or spec.get("completions") is not None, "spec.completions: required when Indexed")
    last = f"{body['metadata']['name']}-{spec.get('completions', 1) - 1}"
    need(not indexed or len(last) <= 63, "metadata.name: too long for the pods' host names")
    pod({"metadata": template.get("metadata") or {}, "spec": template["spec"]})


def deployment(body: dict) -> None:
    spec = body["spec"]
    wanted, given = spec["selector"]["matchLabels"], spec["template"]["metadata"].get("labels") or {}
    need(wanted.items() <= given.items(), "spec.template.metadata.labels: selector does not match them")
    need(spec["template"]["spec"].get("restartPolicy", "Always") == "Always", "spec.template.spec.restartPolicy")
    pod({"metadata": spec["template"]["metadata"], "spec": spec["template"]["spec"]})


def pod(body: dict) -> None:
    labels(body["metadata"].get("labels") or {}, "metadata.labels")
    spec = body["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes") or []]
    need(len(set(volumes)) == len(volumes), "spec.volumes: names must be unique")
    for volume in spec.get("volumes") or []:
        need(len(volume) == 2, f"spec.volumes: {volume['name']} needs exactly one source")
    need(DNS_1035.fullmatch(spec.get("subdomain") or "x"), "spec.subdomain")
    for container in spec["containers"]:
        need(container.get("image"), "spec.containers[0].image: required")
        mounts = container.get("volumeMounts") or []
        paths = [mount["mountPath"] for mount in mounts]
        need(len(set(paths)) == len(paths), "volumeMounts: mountPath must be unique")
        for mount in mounts:
            need(mount["name"] in volumes, f"volumeMounts: {mount['name']} not found")
            sub = mount.get("subPath") or ""
            need(not sub.startswith("/") and ".." not in sub.split("/"), f"volumeMounts.subPath: {sub!r}")
        asked = (container.get("resources") or {}).get("requests") or {}
        limits = (container.get("resources") or {}).get("limits") or {}
        for key, value in asked.items():
            need(key not in limits or parse_quantity(value) <= parse_quantity(limits[key]), f"requests: {key}")
        for key, value in limits.items():
            need("/" not in key or asked.get(key, value) == value, f"limits: {key} must equal its request")


def secret(body: dict) -> None:
    total = 0
    for key, value in (body.get("data") or {}).items():
        need(SECRET_KEY.fullmatch(key) and key not in {".", ".."}, f"data: {key!r}")
        try:
            total += len(base64.b64decode(value, validate=True))
        except binascii.Error as error:
            raise Refusal(400, "BadRequest", f"illegal base64 data: {error}") from error
    need(total <= 1 << 20, "data: Too long: must have at most 1048576 bytes")


def paths_of(body: dict) -> set[tuple[str, str]]:
    rules = body["spec"].get("rules") or []
    return {(rule.get("host", "_"), path["path"]) for rule in rules for path in rule["http"]["paths"]}


def one_ingress_for_each_path(body: dict, others: list[dict]) -> None:
    """Refuse an Ingress whose path another one has, as the admission webhook of ingress-nginx does."""
    for other in others:
        for host, path in paths_of(body) & paths_of(other):
            where = f"{other['metadata']['namespace']}/{other['metadata']['name']}"
            said = f'host "{host}" and path "{path}" is already defined in ingress {where}'
            denied = 'admission webhook "validate.nginx.ingress.kubernetes.io" denied the request'
            raise Refusal(400, "BadRequest", f"{denied}: {said}")


def ingress(body: dict) -> None:
    for rule in body["spec"].get("rules") or []:
        need(SUBDOMAIN.fullmatch(rule.get("host") or "x"), "spec.rules.host")
        for path in rule["http"]["paths"]:
            need(path.get("pathType") in {"Exact", "Prefix", "ImplementationSpecific"}, "paths.pathType: required")
            need(path.get("path", "").startswith("/"), "paths.path: must be an absolute path")
