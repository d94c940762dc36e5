"""The registry in the admin site: registered models, versions, aliases, webhooks and their deliveries.

Imported by models_app.admin.
"""

from __future__ import annotations

import json

from django import forms
from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import badge, link, list_address, moment, object_url, short, url_of
from kernel.messages import translate
from models_app.models import Alias, ModelVersion, RegisteredModel, RegistryDelivery, RegistryWebhook

from . import reading, registered, versions, webhooks

TONES = {"PENDING_REGISTRATION": "creating", "READY": "ready", "FAILED_REGISTRATION": "error"}
DELIVERY_WORDS = {"sending": _("queued"), "delivered": _("delivered"), "failed": _("failed")}
DELIVERY_TONES = {"sending": "creating", "delivered": "ready", "failed": "error"}
SIGNING = {"none": _("not signed"), "set": _("signed"), "unreadable": _("the secret cannot be decrypted")}
VERSIONS_SHOWN = 50


class RegistryAdmin(LifecycleAdmin):
    """Columns that the pages of the registry share."""

    show_full_result_count = False

    def owner(self, row):
        return row.user

    @display(description=_("user"))
    def user_link(self, row) -> str:
        return link(url_of(self.owner(row)), self.owner(row))

    @display(description=_("changed"), ordering="updated")
    def updated_at(self, row) -> str:
        return moment(row.updated)

    @display(description=_("tags"))
    def tag_list(self, row) -> SafeString:
        pairs = sorted(row.tags.items()) if isinstance(row.tags, dict) else ()
        return (
            format_html_join("", "<div><code>{}</code> {}</div>", ((key, short(value)) for key, value in pairs)) or "-"
        )


@admin.register(RegisteredModel)
class RegisteredModelAdmin(RegistryAdmin):
    icon = "inventory_2"
    list_display = ("name", "title", "user_link", "newest_version", "alias_list", "updated_at", "created_at")
    search_fields = ("name", "title", "user__username", "description")
    search_help_text = _("Name, title, username or description")
    date_hierarchy = "created"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("name", "title", "user_link"), ("newest_version", "alias_list"), ("created", "updated"))}),
        (_("Versions"), {"fields": ("version_list",)}),
        (_("Description"), {"fields": ("description", "tag_list")}),
    )
    verbs = {
        "delete": Verb(
            label=_("Delete"),
            run=lambda row, by: registered.delete(row.user, row.name, by),
            check=registered.require_unserved,
            question=_("All its versions are deleted, with the files that were copied for them."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request) -> QuerySet:
        return reading.registered()

    @display(description=_("newest version"))
    def newest_version(self, row: RegisteredModel) -> str:
        return link(list_address("models_app_modelversion", registered__id__exact=row.pk), row.newest or "-")

    @display(description=_("aliases"))
    def alias_list(self, row: RegisteredModel) -> str:
        pairs = ((url_of(alias), f"@{alias.name}", alias.version.number) for alias in row.aliases.all())
        return format_html_join(", ", '<a class="mlp-link" href="{}">{}</a> {}', pairs) or "-"

    @display(description=_("versions"))
    def version_list(self, row: RegisteredModel) -> SafeString:
        shown = row.versions.order_by("-number")[:VERSIONS_SHOWN]
        return format_html_join(", ", "{}", ((link(url_of(version), version.number),) for version in shown)) or "-"


@admin.register(ModelVersion)
class RegisteredVersionAdmin(RegistryAdmin):
    icon = "tag"
    list_display = ("subject", "user_link", "state_text", "stage", "model_link", "run_link_text", "created_at")
    list_display_links = ("subject",)
    list_filter = ("stage", "model__state")
    search_fields = ("registered__name", "registered__user__username", "source", "run_id")
    search_help_text = _("Name, username, source or run id")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("registered__user", "model__user", "job__user")
    fieldsets = (
        (None, {"fields": (("subject", "user_link"), ("state_text", "stage"), "why")}),
        (_("Files"), {"fields": ("source", ("model_link", "run_link_text"), ("run_id", "logged_model"))}),
        (_("Description"), {"fields": ("description", "tag_list", ("created", "updated"))}),
    )
    verbs = {
        "delete": Verb(
            label=_("Delete"),
            run=lambda row, by: versions.delete(row.registered.user, row.registered.name, row.number, by),
            check=versions.require_unserved,
            question=_("The files that were copied for it are permanently deleted, and its aliases."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request) -> QuerySet:
        return super().get_queryset(request).select_related("registered__user", "model__user", "job__user")

    def lookup_allowed(self, lookup: str, value: str, request=None) -> bool:
        return lookup == "registered__id__exact" or super().lookup_allowed(lookup, value, request)

    def owner(self, row: ModelVersion):
        return row.registered.user

    @display(description=_("version"), ordering="registered__name")
    def subject(self, row: ModelVersion) -> str:
        return f"{row.registered.name} {row.number}"

    @display(description=_("state"))
    def state_text(self, row: ModelVersion) -> str:
        return badge(TONES[row.status], row.status.label)

    @display(description=_("reason"))
    def why(self, row: ModelVersion) -> str:
        return translate(row.status_message) or "-"

    @display(description=_("model"))
    def model_link(self, row: ModelVersion) -> str:
        return link(url_of(row.model), row.model.name) if row.model else "-"

    @display(description=_("run"))
    def run_link_text(self, row: ModelVersion) -> str:
        return link(object_url("job", row.job_id), row.job.name) if row.job else "-"


class MoveForm(forms.Form):
    """The version that an alias is to name."""

    version = forms.IntegerField(
        label=_("Version"), min_value=1, max_value=2**31 - 1, widget=UnfoldAdminIntegerFieldWidget
    )


def move(alias: Alias, *, by: str, version: int) -> None:
    registered.set_alias(alias.registered.user, alias.registered.name, alias.name, version, by)


@admin.register(Alias)
class AliasAdmin(RegistryAdmin):
    icon = "alternate_email"
    list_display = ("subject", "user_link", "version_link", "follower_list", "updated_at")
    list_display_links = ("subject",)
    search_fields = ("name", "registered__name", "registered__user__username")
    search_help_text = _("Alias, name or username")
    ordering = ("-updated",)
    fieldsets = (
        (None, {"fields": (("subject", "user_link"), ("version_link", "follower_list"), ("created", "updated"))}),
    )
    verbs = {
        "move": Verb(
            label=_("Move to another version"),
            run=move,
            form=MoveForm,
            initial=lambda alias: {"version": alias.version.number},
            question=_("Applications that follow the alias move to that version."),
            icon="swap_horiz",
        ),
        "delete": Verb(
            label=_("Delete"),
            run=lambda alias, by: registered.delete_alias(alias.registered.user, alias.registered.name, alias.name, by),
            question=_("Applications that follow the alias go on serving the version that they serve now."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request) -> QuerySet:
        rows = super().get_queryset(request).select_related("registered__user", "version__registered")
        return rows.prefetch_related("followers")

    def owner(self, row: Alias):
        return row.registered.user

    @display(description=_("alias"), ordering="registered__name")
    def subject(self, row: Alias) -> str:
        return f"{row.registered.name}@{row.name}"

    @display(description=_("version"))
    def version_link(self, row: Alias) -> str:
        return link(url_of(row.version), row.version.number)

    @display(description=_("applications that follow it"))
    def follower_list(self, row: Alias) -> str:
        return format_html_join(", ", "{}", ((link(url_of(app), app.name),) for app in row.followers.all())) or "-"


@admin.register(RegistryWebhook)
class RegistryWebhookAdmin(RegistryAdmin):
    """Secrets are stored encrypted and shown nowhere."""

    icon = "webhook"
    list_display = ("name", "user_link", "active", "url", "signed", "failed", "last_problem", "created_at")
    list_filter = ("active",)
    search_fields = ("name", "user__username", "url")
    search_help_text = _("Name, username or address")
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("active", "signed"), "url", "event_list", "description")}),
        (_("Deliveries"), {"fields": (("sent", "failed"), "last_problem")}),
        (_("When"), {"fields": (("created", "updated"),)}),
    )
    verbs = {
        "pause": Verb(
            label=_("Pause"),
            run=lambda hook, by: webhooks.save(hook.user, hook, active=False),
            when=lambda hook: hook.active,
            icon="pause_circle",
        ),
        "resume": Verb(
            label=_("Resume"),
            run=lambda hook, by: webhooks.save(hook.user, hook, active=True),
            when=lambda hook: not hook.active,
            icon="play_circle",
        ),
        "delete": Verb(
            label=_("Delete"),
            run=lambda hook, by: webhooks.delete(hook),
            question=_("Nothing more is sent to it. What was sent is forgotten here."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request) -> QuerySet:
        wrong = RegistryDelivery.objects.filter(webhook=OuterRef("pk")).exclude(problem="").order_by("-pk")
        failed = RegistryDelivery.objects.filter(webhook=OuterRef("pk"), open=False).exclude(problem="").order_by()
        return (
            super()
            .get_queryset(request)
            .select_related("user")
            .annotate(wrong=Subquery(wrong.values("problem")[:1]))
            .annotate(failures=Subquery(failed.values("webhook").annotate(n=Count("pk")).values("n")))
        )

    @display(description=_("signature"))
    def signed(self, hook: RegistryWebhook) -> str:
        return badge("error" if hook.signing == "unreadable" else "plain", SIGNING[hook.signing])

    @display(description=_("events"))
    def event_list(self, hook: RegistryWebhook) -> str:
        return format_html_join(" ", "<code>{}</code>", ((event,) for event in hook.events)) or "-"

    @display(description=_("failed"))
    def failed(self, hook: RegistryWebhook) -> int:
        return hook.failures or 0

    @display(description=_("last error"))
    def last_problem(self, hook: RegistryWebhook) -> str:
        return short(translate(hook.wrong)) if hook.wrong else "-"

    @display(description=_("deliveries"))
    def sent(self, hook: RegistryWebhook) -> str:
        address = list_address("models_app_registrydelivery", webhook__id__exact=hook.pk)
        return link(address, hook.deliveries.count())


@admin.register(RegistryDelivery)
class RegistryDeliveryAdmin(RegistryAdmin):
    icon = "outgoing_mail"
    list_display = ("event", "webhook_link", "user_link", "state_text", "attempts", "next_try", "why", "created_at")
    list_filter = ("open", "event")
    search_fields = ("webhook__name", "webhook__user__username", "event", "problem")
    search_help_text = _("Webhook, username, event or error")
    date_hierarchy = "created"
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": (("event", "webhook_link"), ("user_link", "key"), ("state_text", "attempts", "next_try"))}),
        (_("What went wrong"), {"fields": ("error_text",)}),
        (_("Data"), {"fields": ("body",)}),
    )
    verbs = {
        "again": Verb(
            label=_("Try again now"),
            run=lambda row, by: webhooks.again(row),
            when=lambda row: row.open or bool(row.problem),
            icon="refresh",
        ),
    }

    def get_queryset(self, request) -> QuerySet:
        return super().get_queryset(request).select_related("webhook__user")

    def lookup_allowed(self, lookup: str, value: str, request=None) -> bool:
        return lookup == "webhook__id__exact" or super().lookup_allowed(lookup, value, request)

    def owner(self, row: RegistryDelivery):
        return row.webhook.user

    @display(description=_("webhook"), ordering="webhook__name")
    def webhook_link(self, row: RegistryDelivery) -> str:
        return link(url_of(row.webhook), row.webhook.name)

    @display(description=_("state"), ordering="open")
    def state_text(self, row: RegistryDelivery) -> str:
        return badge(DELIVERY_TONES[row.state], DELIVERY_WORDS[row.state])

    @display(description=_("next attempt"), ordering="not_before")
    def next_try(self, row: RegistryDelivery) -> str:
        return moment(row.not_before) if row.open else "-"

    @display(description=_("what went wrong"))
    def why(self, row: RegistryDelivery) -> str:
        return short(translate(row.problem)) or "-"

    @display(description=_("error"))
    def error_text(self, row: RegistryDelivery) -> str:
        return translate(row.problem) or "-"

    @display(description=_("data"))
    def body(self, row: RegistryDelivery) -> SafeString:
        return render_to_string("admin/jobs/log.html", {"text": json.dumps(row.data, indent=2, ensure_ascii=False)})
