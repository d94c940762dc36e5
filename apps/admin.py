"""Applications in the admin site: list, end of the log, restart, delete."""

from __future__ import annotations

from django.contrib import admin
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel.admin import LifecycleAdmin, OwnedAdmin, Verb
from kernel.admin_display import badge, link, moment, object_url, short, url_of
from kernel.admin_trash import TrashFilter, trash_verbs
from kernel.messages import translate

from . import keys, lifecycle, logs, rollouts, trash
from .models import AppKey, Application, Rollout, Shadow, State
from .shadows import verbs as shadows
from .shadows.serializers import latency

LOG_SHOWN = 16 << 10  # bytes


def delete(app: Application, *, by: str) -> None:
    lifecycle.delete_app(user=app.user, name=app.name, by=by)


def is_up(app: Application) -> bool:
    return app.state == State.READY


def restart(app: Application, *, by: str) -> None:
    rollouts.move(user=app.user, name=app.name, by=by, may_restart=True)


def stop(app: Application, *, by: str) -> None:
    lifecycle.stop_app(user=app.user, name=app.name, by=by)


def start(app: Application, *, by: str) -> None:
    lifecycle.start_app(user=app.user, name=app.name, by=by)


@admin.register(Application)
class ApplicationAdmin(OwnedAdmin):
    icon = "rocket_launch"
    list_display = (
        "name", "title", "user_link", "state_badge", "model_link", "asked", "port", "public", "failures", "why",
        "created_at",
    )  # fmt: skip
    list_filter = ("state", TrashFilter, "public", "tenant")
    search_fields = ("name", "title", "user__username", "model__name", "reason", "=port")
    search_help_text = _("Name, title, username, model, reason or port")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant", "model__user")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "model_link"), "reason_text")}),
        (_("Rollout"), {"fields": (("alias_link", "may_restart"), "rollout_link")}),
        (_("Resources"), {"fields": (("asked", "gpu_type", "reserved"), ("tenant_link", "request_link"))}),
        (
            _("Run"),
            {
                "fields": (
                    ("attempt", "failures"),
                    ("run_name", "ordered"),
                    ("replica_counts", "target"),
                    ("port", "address"),
                    ("public", "address_rate"),
                )
            },
        ),
        (_("When"), {"fields": (("created", "ready_since"), ("not_before", "trashed"))}),
        (_("End of the log"), {"fields": ("log_end",)}),
    )
    verbs = {
        "restart": Verb(
            label=_("Restart"),
            run=restart,
            when=is_up,
            check=lambda app: rollouts.require_movable(app, restarts=True),
            question=_(
                "A new process takes over once it is ready. Without room for two, requests fail for a few seconds."
            ),
            icon="restart_alt",
        ),
        "stop": Verb(
            label=_("Stop"),
            run=stop,
            transition="stop",
            question=_("Requests to it will fail. Its resources are freed."),
            icon="stop_circle",
        ),
        "start": Verb(
            label=_("Start"),
            run=start,
            transition="start",
            when=lambda app: not app.run_name and app.trashed is None,
            check=lifecycle.require_startable,
            icon="play_circle",
        ),
        **trash_verbs(trash.trash, trash.restore, check_restore=trash.require_restorable),
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

    @display(description=_("follows"))
    def alias_link(self, app: Application) -> str:
        return link(url_of(app.alias), app.follows) if app.alias_id else "-"

    @display(description=_("rollout"))
    def rollout_link(self, app: Application) -> str:
        rollout = Rollout.objects.filter(app=app).select_related("model").first()
        return link(url_of(rollout), f"{rollout.model.name}: {rollout.get_phase_display()}") if rollout else "-"

    @display(description=_("requested"))
    def asked(self, app: Application) -> str:
        return gettext("%(cpu)g CPU · %(gpu)s GPU · %(ram)s MiB") % {"cpu": app.cpu, "gpu": app.gpu, "ram": app.ram}

    @display(description=_("replicas"))
    def replica_counts(self, app: Application) -> str:
        numbers = {"ready": app.counts.ready, "least": app.replicas_min, "most": app.replicas_max}
        return gettext("%(ready)s ready, %(least)s to %(most)s allowed") % numbers

    @display(description=_("resource request"))
    def request_link(self, app: Application) -> str:
        pk = lifecycle.request_id(app.pk)
        return link(object_url("resourcerequest", pk), pk)

    @display(description=_("log"))
    def log_end(self, app: Application) -> SafeString:
        return render_to_string("admin/jobs/log.html", {"text": logs.end(app, LOG_SHOWN)[0]})


PHASE_TONES = {
    Rollout.Phase.WAITING: "creating",
    Rollout.Phase.STARTING: "creating",
    Rollout.Phase.CANARY: "ready",
    Rollout.Phase.SHADOW: "ready",
    Rollout.Phase.RESTARTING: "creating",
    Rollout.Phase.ENDING: "deleting",
    Rollout.Phase.FAILED: "error",
}


def is_shadow(rollout: Rollout) -> bool:
    return rollout.phase == Rollout.Phase.SHADOW


def promote(rollout: Rollout, *, by: str) -> None:
    shadows.promote(user=rollout.app.user, name=rollout.app.name, by=by)


def end_shadow(rollout: Rollout, *, by: str) -> None:
    shadows.end(user=rollout.app.user, name=rollout.app.name, by=by)


def try_again(rollout: Rollout, *, by: str) -> None:
    rollouts.again(rollout.app_id, by)


@admin.register(Rollout)
class RolloutAdmin(LifecycleAdmin):
    """The moves of applications to another model that are under way or have failed."""

    icon = "swap_horiz"
    list_display = ("app_link", "user_link", "phase_badge", "from_model", "to_model", "why", "created_at")
    list_display_links = None
    list_filter = ("phase",)
    search_fields = ("app__name", "app__user__username", "model__name", "reason")
    search_help_text = _("Application, username, model or reason")
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("app_link", "user_link"), ("phase_badge", "alias_text"), "reason_text")}),
        (_("Models"), {"fields": (("from_model", "to_model"),)}),
        (
            _("Run"),
            {"fields": (("run_name", "reserved"), ("ordered", "not_before"), ("percent", "proposed"), ("created",))},
        ),
    )
    verbs = {
        "again": Verb(
            label=_("Try again"),
            run=try_again,
            when=lambda rollout: rollout.phase in (Rollout.Phase.FAILED, Rollout.Phase.WAITING),
            icon="refresh",
        ),
        "promote": Verb(
            label=_("Promote the shadow"),
            run=promote,
            when=is_shadow,
            question=_("All requests go to its model from then on."),
            icon="publish",
        ),
        "endshadow": Verb(label=_("End the shadow"), run=end_shadow, when=is_shadow, icon="visibility_off"),
    }

    def get_queryset(self, request):
        rows = super().get_queryset(request)
        return rows.select_related("app__user", "app__model__user", "app__alias__registered", "model__user")

    @display(description=_("application"), ordering="app__name")
    def app_link(self, rollout: Rollout) -> str:
        return link(url_of(rollout), rollout.app.name)

    @display(description=_("user"), ordering="app__user__username")
    def user_link(self, rollout: Rollout) -> str:
        return link(url_of(rollout.app.user), rollout.app.user)

    @display(description=_("phase"), ordering="phase")
    def phase_badge(self, rollout: Rollout) -> str:
        return badge(PHASE_TONES[rollout.phase], rollout.get_phase_display())

    @display(description=_("follows"))
    def alias_text(self, rollout: Rollout) -> str:
        return rollout.app.follows or "-"

    @display(description=_("serves"))
    def from_model(self, rollout: Rollout) -> str:
        return link(url_of(rollout.app.model), rollout.app.model.name)

    @display(description=_("moves to"))
    def to_model(self, rollout: Rollout) -> str:
        return link(url_of(rollout.model), rollout.model.name)

    @display(description=_("reason"))
    def why(self, rollout: Rollout) -> str:
        return short(translate(rollout.reason)) or "-"


def revoke(key: AppKey, *, by: str) -> None:
    keys.revoke(app=key.app, name=key.name, by=by)


@admin.register(AppKey)
class AppKeyAdmin(LifecycleAdmin):
    """What callers of applications authenticate with. The text of a key is shown once, to whoever makes it."""

    icon = "vpn_key"
    list_display = ("name", "app_link", "user_link", "created_at", "expires_at", "used_at", "recent")
    search_fields = ("name", "app__name", "app__user__username")
    search_help_text = _("Name, application or username")
    date_hierarchy = "created"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("name", "app_link"), ("user_link", "by"), ("created", "expires"), ("rate", "day_tokens"))}),
        (_("Use"), {"fields": (("used", "address"), "recent", "tokens")}),
    )
    verbs = {
        "revoke": Verb(
            label=_("Revoke"),
            run=revoke,
            question=_("Requests with this key are refused immediately."),
            icon="key_off",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        rows = super().get_queryset(request).select_related("app__user")
        return rows.annotate(**{field: keys.recent(field) for field in keys.Day._fields[1:]})

    @display(description=_("application"), ordering="app__name")
    def app_link(self, key: AppKey) -> str:
        return link(url_of(key.app), key.app.name)

    @display(description=_("user"), ordering="app__user__username")
    def user_link(self, key: AppKey) -> str:
        return link(url_of(key.app.user), key.app.user)

    @display(description=_("expires"), ordering="expires")
    def expires_at(self, key: AppKey) -> str:
        return moment(key.expires)

    @display(description=_("last used"), ordering="used")
    def used_at(self, key: AppKey) -> str:
        return moment(key.used)

    @display(description=_("requests, last 30 days"), ordering="requests")
    def recent(self, key: AppKey) -> int:
        return key.requests

    @display(description=_("tokens, last 30 days"))
    def tokens(self, key: AppKey) -> int:
        return key.prompt_tokens + key.completion_tokens


@admin.register(Shadow)
class ShadowAdmin(LifecycleAdmin):
    """What came of the requests that were copied to other models, without the requests themselves."""

    icon = "compare"
    list_display = ("app_link", "user_link", "serves", "model_name", "compared", "different", "failed", "ended_as")
    list_display_links = None
    list_filter = ("outcome",)
    search_fields = ("app__name", "app__user__username", "model_name")
    search_help_text = _("Application, username or model")
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("app_link", "user_link"), ("serves", "model_name"), ("percent", "minutes", "by"))}),
        (
            _("Compared answers"),
            {"fields": (("equal", "different", "status"), ("failed", "unknown"), ("dropped", "unfit"), "slow")},
        ),
        (_("When"), {"fields": (("created", "began", "ended"), "ended_as", "reason")}),
    )
    verbs: dict = {}

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("app__user")

    @display(description=_("application"), ordering="app__name")
    def app_link(self, shadow: Shadow) -> str:
        return link(url_of(shadow), shadow.app.name)

    @display(description=_("user"), ordering="app__user__username")
    def user_link(self, shadow: Shadow) -> str:
        return link(url_of(shadow.app.user), shadow.app.user)

    @display(description=_("compared"))
    def compared(self, shadow: Shadow) -> int:
        return shadow.compared

    @display(description=_("outcome"), ordering="outcome")
    def ended_as(self, shadow: Shadow) -> str:
        return shadow.get_outcome_display() or "-"

    @display(description=_("p95 latency (ms)"))
    def slow(self, shadow: Shadow) -> str:
        return f"{latency(shadow.base_ms)['p95_ms'] or '-'} / {latency(shadow.shadow_ms)['p95_ms'] or '-'}"
