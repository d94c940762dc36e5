"""The pages of a user's trash, and of what takes most space."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from jobs.models import Project
from kernel.pages import attempt, page_of, safe_next

from . import kinds, largest


@login_required
@require_GET
def trash(request):
    """List what is in the trash."""
    page = page_of(request, kinds.rows(request.user))
    page.object_list = kinds.entries(list(page.object_list))
    kinds.explain(page.object_list, request.user)
    context = {
        "page": page,
        "total": kinds.total(request.user),
        "projects": Project.objects.filter(user=request.user).exclude(trashed=None).count(),
    }
    return render(request, "trash.html", context)


@login_required
@require_POST
def change(request):
    """Restore or delete one object: `do` is restore or delete."""
    kind, name, do = (request.POST.get(field, "") for field in ("kind", "name", "do"))
    verb = {"restore": kinds.restore, "delete": kinds.delete}.get(do)
    if verb is None or kind not in kinds.KINDS or "\x00" in name:
        raise Http404
    problem = attempt(lambda: verb(request.user, kind, name, request.user.username))
    if problem:
        messages.error(request, problem)
    elif do == "restore":
        messages.success(request, _("%(name)s is restored.") % {"name": name})
    else:
        messages.success(request, _("%(name)s is being deleted.") % {"name": name})
    return redirect(safe_next(request, reverse("trash")))


@login_required
@require_GET
def largest_items(request):
    """List the user's largest datasets, outputs, models and workspaces; `?kind=` only those of a kind."""
    chosen = request.GET.get("kind", "")
    chosen = chosen if chosen in largest.COUNTED else ""
    titles = [(name, kinds.KINDS[name].model._meta.verbose_name_plural) for name in largest.COUNTED]
    items = largest.items(request.user, chosen)
    kinds.explain(items, request.user)
    context = {"items": items, "kinds": titles, "kind": chosen, "most": largest.MAX}
    return render(request, "largest.html", context)


@login_required
@require_POST
def move(request):
    """Move one object to the trash."""
    kind, name = request.POST.get("kind", ""), request.POST.get("name", "")
    if kind not in kinds.KINDS or "\x00" in name:
        raise Http404
    problem = attempt(lambda: kinds.trash(request.user, kind, name, request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(
            request, _("%(name)s moved to the trash.") % {"name": name}, extra_tags=f"restore-{kind}/{name}"
        )
    return redirect(safe_next(request, reverse("trash")))
