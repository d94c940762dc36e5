"""The pages of saved comparisons: one of them, which can be shared, and the forms that save and delete."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.models import Comparison
from kernel.locking import Missing
from kernel.pages import attempt, safe_next

from . import saved
from .pages import context_of, in_order, query_without


@shareable
@require_GET
def comparison(request, name):
    """Show a saved comparison with its settings; what the address says comes before them."""
    row = access.find(request, saved.with_runs(Comparison.objects.all()), name)
    jobs = in_order(request, row.user.username, row.names)
    settings = QueryDict(row.query)
    only = request.GET.get("only", settings.get("only", ""))
    query = QueryDict(mutable=True)
    query.setlist("job", [job.name for job in jobs])
    context = {
        **context_of(request, jobs, only == "differences"),
        "comparison": row,
        "saved_query": row.query,
        "without_only": query_without(request, "only"),
        "runs_query": query.urlencode(),
        "others": [],
    }
    return render(request, "tracking/compare.html", context)


@login_required
@require_POST
def save(request):
    """Save the runs of a comparison under a name, or delete a saved one."""
    post, name = request.POST, request.POST.get("name", "").strip()
    back = safe_next(request, reverse("compare"))
    if post.get("do") == "delete":
        problem = attempt(lambda: _delete(request, name))
        if problem:
            messages.error(request, problem)
        return redirect("compare")
    created = []
    problem = attempt(
        lambda: created.append(
            saved.save(
                request.user, name=name, jobs=post.getlist("job"), query=post.get("query", ""),
                replace=post.get("replace") == "1",
            )
        )
    )  # fmt: skip
    if problem:
        messages.error(request, problem)
        return redirect(back)
    messages.success(request, _("The comparison %(name)s is saved.") % {"name": name})
    return redirect("comparison", name=created[0].name)


def _delete(request, name: str) -> None:
    try:
        saved.delete(request.user, name)
    except Missing:
        return  # by another page
    messages.success(request, _("The comparison %(name)s is deleted. Its runs are kept.") % {"name": name})
