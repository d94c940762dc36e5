"""The form that submits a job: its choices, its first values, and what it sends. It is on the page of all runs."""

from __future__ import annotations

import shlex
from itertools import islice

import runners
from accounts import throttle
from accounts.sharing.access import visitor_of
from datasets import sources
from kernel import storage
from kernel.pages import free_name, read_form
from kernel.registering import Registry, lines_of
from resources import products
from resources.models import Network, Tenant

from . import form_values, lifecycle
from .artifacts import outputs
from .code import cloning, editing
from .models import Job, Runtime
from .models.submission import NOTEBOOK
from .serializers import JobIn

SCRIPTS_SHOWN = 200
MORE_FIELDS = {
    "env",
    "inputs",
    "retries",
    "timeout",
    "priority",
    "preemptible",
    "runtime",
    "image",
    "gpu_type",
    "workers",
    "network",
    "requirements",
    "environment",
    "registry",
    "registry_models",
    "output_uri",
}
COPIED = (
    "title", "entry", "runtime", "gpu", "cpu", "ram", "retries", "workers", "network", "datasets", "requirements",
    "environment", "image", "gpu_type",
)  # fmt: skip


def choices(user) -> dict:
    """Return the choices of the submit form: scripts, ready datasets, runtimes, images, and free resources."""
    scripts = islice(
        (path for path, _info in storage.files(storage.home_dir(user.username)) if path.endswith((".py", NOTEBOOK))),
        SCRIPTS_SHOWN,
    )
    tenant = Tenant.objects.get(pk=user.tenant_id)
    return {
        "scripts": list(scripts),
        "ready": sources.offered(user),
        "runtimes": Runtime.choices,
        "images": sorted(runners.get().images or ()),
        "gpu_types": products.offered(),
        "many_workers": runners.get().many_workers,
        "registries": Registry.choices,
        "networks": [(value, words) for value, words in Network.choices if _allowed(value, tenant)],
        "tenant_network": Network(tenant.network_policy).label,
        "free": {kind: tenant.left(kind) for kind in ("cpu", "gpu", "ram")},
    }


def _allowed(policy: str, tenant: Tenant) -> bool:
    return runners.narrowest(policy, tenant.network_policy) == policy


def first_values(request) -> dict:
    """Return the initial form: the defaults, or (`?from=job`) the values of an earlier job.

    `?from=owner/job` is another user's, shared with the right to clone. `missing` are its datasets that are not.
    """
    form = {
        "cpu": 1,
        "gpu": 0,
        "ram": 512,
        "retries": 0,
        "timeout": "",
        "priority": 0,
        "workers": 1,
        "runtime": Runtime.PYTHON,
        "registry": Registry.VERSIONS,
        "datasets": [],
        "find_requirements": "from" not in request.GET,  # an earlier job has what was found for it
    }
    form["entry"] = request.GET.get("entry", "")
    form["datasets"] = request.GET.getlist("dataset")
    form["project"] = request.GET.get("project", "")
    wanted = request.GET.get("from", "")
    earlier = cloning.to_clone(visitor_of(request), wanted)
    if earlier is None and "/" in wanted:
        form["refused"] = wanted[:200]
    if earlier is not None:
        for name in COPIED:
            form[name] = getattr(earlier, name)
        form["cpu"] = f"{earlier.cpu:g}"
        form["timeout"] = "" if earlier.timeout is None else str(earlier.timeout)
        form["priority"], form["preemptible"] = earlier.priority, earlier.preemptible
        form["args"] = shlex.join(earlier.args)
        form["inputs"] = "\n".join(f"{name}={source}" for name, source in earlier.job_inputs.items())
        own = earlier.reading is None
        if own:
            form["tenant"], form["output_uri"] = earlier.tenant.name, earlier.output_uri
            form |= {"registry": earlier.registry, "registry_models": "\n".join(earlier.registry_models)}
            form |= {"project": earlier.project.name if earlier.project else "", "group": earlier.group}
        form["env"] = "\n".join(f"{name}={value}" for name, value in earlier.env.items()) if own else ""
        form["hidden"] = cloning.hidden_variables(earlier)
        if not own:
            owner = earlier.user.username
            wanted = [name if "/" in name else f"{owner}/{name}" for name in earlier.datasets]
            form["missing"] = sources.missing(request.user, wanted)
            form["datasets"] = [name for name in wanted if name not in form["missing"]]
            form["cloned"] = f"{owner}/{earlier.name}"
        form["name"] = free_name(Job.objects.filter(user=request.user), earlier.name)
        form |= editing.first_values(earlier, "edit" in request.GET)
    return form


def is_unusual(form: dict) -> bool:
    """Return whether the form has a value that differs from the default in its part that is closed at first."""
    usual = form.get("runtime", "python") == "python" and str(form.get("retries") or 0) == "0"
    usual = usual and str(form.get("workers") or 1) == "1"
    usual = usual and str(form.get("priority") or 0) == "0"
    usual = usual and form.get("registry", Registry.VERSIONS) == Registry.VERSIONS
    more = (
        "registry_models",
        "env",
        "requirements",
        "environment",
        "image",
        "gpu_type",
        "hidden",
        "inputs",
        "network",
        "timeout",
        "preemptible",
        "output_uri",
    )
    return not usual or any(form.get(name) for name in more)


def submit(request) -> Job:
    """Submit the job of the form. Raises Refused."""
    chosen = [name for name in request.POST.getlist("datasets") if name]
    fields = read_form(
        request,
        JobIn,
        gpu=int,
        cpu=float,
        ram=int,
        retries=int,
        timeout=form_values.seconds,
        priority=int,
        preemptible=bool,
        find_requirements=bool,
        workers=int,
        args=form_values.arguments,
        env=form_values.variables,
        inputs=form_values.variables,
        registry_models=lines_of,
        datasets=lambda _text: chosen,
        tags=form_values.tags,
        script=editing.script_of,
    )
    visitor = visitor_of(request)
    editing.drop_unchanged(visitor, fields)
    throttle.count_submission(request.user.username)
    outputs.require(request.user.pk)
    return lifecycle.create_job(user=request.user, visitor=visitor, by=request.user.username, **fields)
