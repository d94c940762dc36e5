"""Applications in the admin site: list, end of the log, restart, delete."""

from __future__ import annotations

from django.contrib import admin
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel.admin import OwnedAdmin, Verb
from kernel.admin_display import link, object_url, url_of

from . import lifecycle, logs
from .models import Application, State

LOG_SHOWN = 16 << 10  # bytes


def delete(app: Application, *, by: str) -> None:
    lifecycle.delete_app(user=app.user, name=app.name, by=by)


def is_ready(app: Application) -> bool:
    return app.state == State.READY


def restart(app: Application, *, by: str) -> None:
    lifecycle.restart(app.pk, by=by)


@admin.register(Application)
class ApplicationAdmin(OwnedAdmin):
    icon = "rocket_launch"
    list_display = (
        "name", "user_link", "state_badge", "model_link", "asked", "port", "public", "failures", "why", "created_at",
    )  # fmt: skip
    list_filter = ("state", "public", "tenant")
    search_fields = ("name", "user__username", "model__name", "reason", "=port")
    search_help_text = _("Name, username, model, reason or port")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant", "model__user")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "model_link"), "reason_text")}),
        (_("Resources"), {"fields": (("asked", "reserved"), ("tenant_link", "request_link"))}),
        (_("Run"), {"fields": (("attempt", "failures"), ("run_name", "ordered"), ("port", "address"), ("public",))}),
        (_("When"), {"fields": (("created", "ready_since"), ("not_before",))}),
        (_("End of the log"), {"fields": ("log_end",)}),
    )
    verbs = {
        "restart": Verb(
            label=_("Restart"),
            run=restart,
            when=is_ready,
            question=_("Its process is restarted. Requests fail until it is up again."),
            icon="restart_alt",
        ),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            question=_(
                "Its process is stopped, its log is deleted, its port and resources are freed. The model is kept."
            ),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("model__user")

    @display(description=_("model"), ordering="model__name")
    def model_link(self, app: Application) -> str:
        return link(url_of(app.model), app.model.name)

    @display(description=_("requested"))
    def asked(self, app: Application) -> str:
        return gettext("%(cpu)g CPU · %(gpu)s GPU · %(ram)s MiB") % {"cpu": app.cpu, "gpu": app.gpu, "ram": app.ram}

    @display(description=_("resource request"))
    def request_link(self, app: Application) -> str:
        pk = lifecycle.request_id(app.pk)
        return link(object_url("resourcerequest", pk), pk)

    @display(description=_("log"))
    def log_end(self, app: Application) -> SafeString:
        return render_to_string("admin/jobs/log.html", {"text": logs.end(app, LOG_SHOWN)[0]})
