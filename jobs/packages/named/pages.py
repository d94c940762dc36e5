"""The pages of named environments: the list with the form of a new version, and one version."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.tenancy import members
from jobs.models import EnvironmentVersion, Runtime, VersionState
from jobs.packages import text
from jobs.packages.store import Environment
from kernel.locking import Missing
from kernel.models import history_of
from kernel.pages import attempt, page_of, problems_of, read_form, why_not

from . import installing, lifecycle, references, used
from .serializers import NamedEnvironmentIn

FIELDS = ("name", "requirements", "pyproject", "lock", "runtime", "tenant")
FILES = ("pyproject", "lock")
MAX_FILE = 1 << 20
HISTORY_SHOWN, USES_SHOWN = 50, 50


@login_required
@require_http_methods(["GET", "POST"])
def environments(request):
    """List the versions of named environments in the user's tenants; POST creates the next version of a name."""
    problems, made = None, []
    if request.method == "POST":
        problems = problems_of(lambda: made.append(_create(request)), FIELDS)
        if made:
            return redirect(address_of(made[0]))
    page = page_of(request, references.readable(request.user).order_by("-pk"))
    context = {
        "page": page,
        "form": request.POST.dict() if request.method == "POST" else _first_values(request),
        "problems": problems,
        "open": bool(problems or {"new", "like"} & set(request.GET) or not page.object_list),
        "runtimes": Runtime.choices,
        "submits": bool(members.open_to(request.user)),
    }
    return render(request, "jobs/named_environments.html", context, status=problems.status if problems else 200)


def _create(request) -> EnvironmentVersion:
    fields = read_form(request, NamedEnvironmentIn)
    for name in FILES:
        if name in request.FILES:
            fields[name] = text.decoded(request.FILES[name].read(MAX_FILE + 1))
    if fields.get("pyproject"):
        fields.pop("requirements", None)
    fields = NamedEnvironmentIn.read(fields)
    return lifecycle.create_version(user=request.user, by=request.user.username, **fields)


def _first_values(request) -> dict:
    """Return the form with the packages of the version that `?like=` names, for its next one."""
    tenant = request.GET.get("tenant", "").replace("\x00", "") or None
    try:
        version = references.find(request.user, request.GET.get("like", "").replace("\x00", ""), tenant)
    except Missing:
        return {}
    return {"name": version.name, "requirements": version.requirements, "runtime": version.runtime,
            "tenant": version.tenant.name}  # fmt: skip


@login_required
@require_GET
def environment(request, reference):
    """Show a version: its packages, state, progress and log, and what uses it."""
    version = _version(request, reference)
    uses = used.uses_of(version)
    shown = used.shown_to(request.user, version, uses)
    others = references.readable(request.user).filter(environment=version.environment).exclude(pk=version.pk)
    context = {
        "version": version,
        "progress": installing.progress_of(version),
        "bytes": Environment(version.user_id, version.packages).size_mib() << 20,
        "uses": shown[:USES_SHOWN],
        "more_uses": len(shown[USES_SHOWN:]),
        "others": others.exclude(state=VersionState.DELETING).order_by("-number")[:USES_SHOWN],
        "history": history_of(version)[:HISTORY_SHOWN],
        "unsteady": version.state in (VersionState.BUILDING, VersionState.DELETING),
        "changes": not why_not(lambda: lifecycle.require_owner(request.user, version.environment)),
        "undeletable": why_not(lambda: lifecycle.require_unused(version, request.user, uses)),
    }
    return render(request, "jobs/named_environment.html", context)


@login_required
@require_POST
def retry(request, reference):
    """Order the installation of a failed version again."""
    version = _version(request, reference)
    if problem := attempt(lambda: lifecycle.retry_version(
        user=request.user, pk=version.pk, by=request.user.username
    )):  # fmt: skip
        messages.error(request, problem)
    return redirect(address_of(version))


@login_required
@require_POST
def delete(request, reference):
    """Delete a version that nothing uses."""
    version = _version(request, reference)
    if problem := attempt(lambda: lifecycle.delete_version(
        user=request.user, pk=version.pk, by=request.user.username
    )):  # fmt: skip
        messages.error(request, problem)
        return redirect(address_of(version))
    messages.success(request, _("%(name)s is being deleted.") % {"name": version.reference})
    return redirect("named_environments")


def address_of(version: EnvironmentVersion) -> str:
    """Return the address of a version's page."""
    return f"{reverse('environment', args=[version.reference])}?{urlencode({'tenant': version.tenant.name})}"


def _version(request, reference: str) -> EnvironmentVersion:
    """Return the version of an address. Raises Http404."""
    tenant = (request.GET.get("tenant") or request.POST.get("tenant", "")).replace("\x00", "")
    try:
        return references.find(request.user, reference, tenant or None)
    except Missing as problem:
        raise Http404 from problem
