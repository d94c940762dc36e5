"""LifecycleAdmin: the administrators' pages of an object that only its lifecycle may change.

All fields are read-only. The operations on an object are its `verbs`, shown as buttons on its page and as actions of
its list. A verb is POSTed to its own URL, outside of the admin's transaction, and calls the app's lifecycle. A refusal
becomes an error message; a fault propagates. Subclassed by every app's admin.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import flatten_fieldsets, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django_fsm import can_proceed
from unfold.admin import ModelAdmin
from unfold.decorators import display

from .admin_display import badge, changed, link, moment, object_url, short, state_name, timeline_of, url_of
from .admin_words import changed_values, done_text, not_now, reason_of, show_refusal
from .errors import Refused
from .messages import translate
from .models import StateChange

NAMES_ON_PAGE = 100


def always(obj: Model) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Verb:
    """An operation on an object: `run(obj, by=…, **form values)` calls the app's lifecycle.

    Allowed while `transition` (the model's method of that name) can proceed and `when` returns True; shown without
    being offered while `check` raises Refused, with that reason. A verb with a `question` or a `form` is confirmed on a
    separate page first.
    """

    label: str
    run: Callable[..., object]
    transition: str = ""
    when: Callable[[Model], bool] = always
    check: Callable[[Model], object] = always
    question: str = ""
    form: type[forms.Form] | None = None
    initial: Callable[[Model], dict] = lambda obj: {}
    icon: str = "play_arrow"
    tone: str = "default"  # default, primary or danger
    permission: str = "change"
    on_lists: bool = True

    def legal(self, obj: Model) -> bool:
        return (not self.transition or can_proceed(getattr(obj, self.transition))) and self.when(obj)

    @property
    def asks(self) -> bool:
        return bool(self.question or self.form)


class LifecycleAdmin(ModelAdmin):
    """Subclasses set `verbs`, `fieldsets` (all read-only) and, where objects may be created here, `create_form`."""

    verbs: dict[str, Verb] = {}
    create_form: type[forms.Form] | None = None
    icon = "data_object"
    list_per_page = 50
    list_max_show_all = 500
    list_fullwidth = True
    list_after_template = "admin/lifecycle/list.html"
    change_form_outer_before_template = "admin/lifecycle/verbs.html"
    change_form_outer_after_template = "admin/lifecycle/after.html"
    object_history_template = "admin/lifecycle/history.html"

    # --- permissions ------------------------------------------------------------------------------------------
    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.create_form is not None and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # only lifecycles change fields; see `may` for the verbs

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # deletion is a verb

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return any(self._granted(request, what) for what in ("view", "change"))

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        return self._granted(request, verb.permission)

    def _granted(self, request: HttpRequest, what: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{what}_{self.opts.model_name}")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        return flatten_fieldsets(self.fieldsets or ())

    # --- pages ------------------------------------------------------------------------------------------------
    def get_urls(self) -> list:
        name = f"{self.opts.app_label}_{self.opts.model_name}_verb"
        view = self.admin_site.admin_view(self.verb_view)
        return [path("<path:object_id>/do/<slug:verb>/", view, name=name), *super().get_urls()]

    def changelist_view(self, request, extra_context=None):
        classes = {"element_classes": {"pagination": "mlp-count"}}  # for the script that keeps the list up to date
        return super().changelist_view(request, {**classes, **(extra_context or {})})

    def render_change_form(self, request, context, add=False, change=False, form_url="", obj=None):
        if obj is not None:
            context["verb_buttons"] = [
                {"name": name, "verb": verb, "url": self.verb_url(obj, name), "why": reason_of(verb, obj)}
                for name, verb in self.verbs.items()
                if self.may(request, verb) and verb.legal(obj)
            ]
            context["timeline"] = timeline_of(obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def history_view(self, request, object_id, extra_context=None):
        obj = self.get_object(request, unquote(object_id))
        extra = {"timeline": timeline_of(obj, 1000) if obj is not None else []}
        return super().history_view(request, object_id, {**extra, **(extra_context or {})})

    def delete_view(self, request, object_id, extra_context=None):
        if "delete" not in self.verbs:
            raise PermissionDenied
        return HttpResponseRedirect(self._verb_path(object_id, "delete"))

    def add_view(self, request, form_url="", extra_context=None):
        """Create an object by `create`: without a model form, and outside of the admin's transaction."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self.create_form(request.POST or None, initial=self.create_initial(request))
        if request.method == "POST" and form.is_valid():
            try:
                created = self.create(by=operator(request), **form.cleaned_data)
            except Refused as refused:
                show_refusal(form, refused)
            else:
                return self.created(request, created)
        title = gettext("Add %s") % self.opts.verbose_name
        context = {"form": form, "submit": gettext("Add"), "title": title, "object": None}
        return self._page(request, "admin/lifecycle/verb.html", context)

    def create(self, *, by: str, **values) -> object:
        raise NotImplementedError

    def create_initial(self, request: HttpRequest) -> dict:
        return {}

    def created(self, request: HttpRequest, result: Model) -> HttpResponse:
        text = gettext("The %(kind)s %(object)s was added.") % {"kind": self.opts.verbose_name, "object": result}
        messages.success(request, text)
        self.note(request, result, gettext("Added"))
        return HttpResponseRedirect(url_of(result))

    # --- verbs ------------------------------------------------------------------------------------------------
    def verb_url(self, obj: Model, name: str) -> str:
        return self._verb_path(quote(obj.pk), name)

    def _verb_path(self, object_id: str, name: str) -> str:
        address = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_verb"
        return reverse(address, args=[object_id, name])

    def verb_view(self, request: HttpRequest, object_id: str, verb: str) -> HttpResponse:
        """Ask for confirmation or the form (GET); run the verb once both are given (POST)."""
        chosen = self.verbs.get(verb)
        if chosen is None:
            raise Http404
        if not self.may(request, chosen):
            raise PermissionDenied
        obj = self.get_object(request, unquote(object_id))
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if not chosen.legal(obj):
            messages.error(request, not_now(chosen, obj))
            return HttpResponseRedirect(url_of(obj))
        confirmed = request.method == "POST" and (not chosen.asks or "confirmed" in request.POST)
        form = chosen.form(request.POST if confirmed else None, initial=chosen.initial(obj)) if chosen.form else None
        if confirmed and (form is None or form.is_valid()):
            try:
                chosen.run(obj, by=operator(request), **(form.cleaned_data if form else {}))
            except Refused as refused:
                if form is None:
                    messages.error(request, f"{obj}: {translate(refused.msg)}")
                    return self._back(request, obj)
                show_refusal(form, refused)
            else:
                return self._done(request, verb, chosen, obj, changed_values(form))
        context = {"verb": chosen, "form": form, "title": chosen.label, "submit": chosen.label, "object": obj}
        return self._page(request, "admin/lifecycle/verb.html", context)

    def _done(self, request: HttpRequest, name: str, verb: Verb, obj: Model, values: str) -> HttpResponse:
        fresh = self.get_object(request, str(obj.pk))
        if not verb.transition:  # a transition has written its StateChange
            self.note(request, obj, f"{verb.label}: {values}" if values else str(verb.label))
        messages.success(request, done_text(verb, fresh or obj))
        self.verb_done(request, name, fresh or obj)
        return self._back(request, fresh)

    def verb_done(self, request: HttpRequest, name: str, obj: Model) -> None:
        """Adjust the administrator's own session after a verb. Overridden where a verb affects it."""

    def note(self, request: HttpRequest, obj: Model, what: str) -> None:
        """Write the administrator's action to Django's admin log, for changes without a change of state."""
        self.log_change(request, obj, what)

    def _back(self, request: HttpRequest, obj: Model | None) -> HttpResponse:
        address = request.POST.get("next", "")
        if url_has_allowed_host_and_scheme(address, {request.get_host()}, request.is_secure()):
            return HttpResponseRedirect(address)
        gone = obj is None or not self.model._default_manager.filter(pk=obj.pk).exists()
        return HttpResponseRedirect(self._list_address() if gone else url_of(obj))

    def _list_address(self) -> str:
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _page(self, request: HttpRequest, template: str, context: dict) -> TemplateResponse:
        request.current_app = self.admin_site.name
        back = url_of(context["object"]) if context.get("object") else self._list_address()
        address = request.POST.get("next", request.GET.get("next", ""))
        shared = {"opts": self.opts, "media": self.media, "next": address, "back": back}
        return TemplateResponse(request, template, {**self.admin_site.each_context(request), **shared, **context})

    # --- verbs on lists ---------------------------------------------------------------------------------------
    def get_actions(self, request: HttpRequest) -> dict:
        actions = super().get_actions(request)
        if IS_POPUP_VAR in request.GET:
            return actions
        for name, verb in self.verbs.items():
            if verb.on_lists and verb.form is None and self.may(request, verb):
                actions[f"do_{name}"] = (self._action(name, verb), f"do_{name}", verb.label)
        return actions

    def _action(self, name: str, verb: Verb) -> Callable:
        def action(model_admin, request, queryset):
            if verb.asks and "confirmed" not in request.POST:
                context = {
                    "verb": verb,
                    "title": verb.label,
                    "action": f"do_{name}",
                    "names": [(str(obj), self._refusal(verb, obj)) for obj in queryset[:NAMES_ON_PAGE]],
                    "count": queryset.count(),
                    "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
                    "across": request.POST.get("select_across", "0"),
                }
                return self._page(request, "admin/lifecycle/verb_selected.html", context)
            self._run_each(request, name, verb, queryset)
            return None

        return action

    def _refusal(self, verb: Verb, obj: Model) -> str:
        return reason_of(verb, obj) if verb.legal(obj) else not_now(verb, obj)

    def _run_each(self, request: HttpRequest, name: str, verb: Verb, objects: Iterable[Model]) -> None:
        """Run the verb on each object, one transaction each. A fault stops the loop; the objects done are reported."""
        done = []
        try:
            for obj in objects:
                if not verb.legal(obj):
                    messages.error(request, not_now(verb, obj))
                    continue
                try:
                    verb.run(obj, by=operator(request))
                except Refused as refused:
                    messages.error(request, f"{obj}: {translate(refused.msg)}")
                    continue
                done.append(str(obj))
                if not verb.transition:
                    self.note(request, obj, str(verb.label))
                self.verb_done(request, name, obj)
        finally:
            if done:
                values = {"verb": verb.label, "count": len(done), "names": ", ".join(done[:NAMES_ON_PAGE])}
                messages.success(request, gettext("%(verb)s: done for %(count)s (%(names)s)") % values)

    # --- columns ----------------------------------------------------------------------------------------------
    @display(description=_("state"), ordering="state")
    def state_badge(self, obj: Model) -> str:
        return badge(getattr(obj, "shown_state", obj.state), state_name(obj))

    @display(description=_("reason"))
    def reason_text(self, obj: Model) -> str:
        """Return the whole reason in the reader's language, for the page of one object."""
        return translate(obj.reason)

    @display(description=_("created"), ordering="created")
    def created_at(self, obj: Model) -> str:
        return moment(obj.created)


@admin.register(StateChange)
class StateChangeAdmin(LifecycleAdmin):
    """The history of all objects, deleted ones included."""

    icon = "history"
    list_display = ("at_text", "kind_text", "subject", "transition", "from_state", "to_state", "by", "why")
    list_display_links = ("at_text",)
    list_filter = ("kind", "target", "transition")
    search_fields = ("owner", "name", "by", "reason")
    search_help_text = _("Owner, name, actor or reason")
    date_hierarchy = "at"
    ordering = ("-id",)
    show_full_result_count = False
    change_form_outer_after_template = None
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("at", "by"),
                    ("kind_text", "subject"),
                    ("from_state", "to_state", "transition"),
                    "reason_text",
                )
            },
        ),
    )

    @display(description=_("at"), ordering="at")
    def at_text(self, row: StateChange) -> str:
        return moment(row.at)

    @display(description=_("kind"), ordering="kind")
    def kind_text(self, row: StateChange) -> str:
        return changed(row).kind_word

    @display(description=_("object"), ordering="name")
    def subject(self, row: StateChange) -> str:
        return link(object_url(row.kind, row.object_id), changed(row).subject)

    @display(description=_("from"), ordering="source")
    def from_state(self, row: StateChange) -> str:
        return badge(row.source, changed(row).source_word) if row.source else "-"

    @display(description=_("to"), ordering="target")
    def to_state(self, row: StateChange) -> str:
        return badge(row.shown_target, changed(row).target_word)

    @display(description=_("why"))
    def why(self, row: StateChange) -> str:
        return short(translate(row.reason))


class OwnedAdmin(LifecycleAdmin):
    """The admin of objects that belong to a user, with columns for owner, tenant and the reason of a failure."""

    def get_queryset(self, request: HttpRequest):
        return super().get_queryset(request).select_related("user", "tenant")

    @display(description=_("user"), ordering="user__username")
    def user_link(self, obj: Model) -> str:
        return link(url_of(obj.user), obj.user)

    @display(description=_("tenant"))
    def tenant_link(self, obj: Model) -> str:
        return link(url_of(obj.tenant), obj.tenant)

    @display(description=_("reason"))
    def why(self, obj: Model) -> str:
        return short(translate(obj.reason)) or "-"


def operator(request: HttpRequest) -> str:
    return f"operator:{request.user.get_username()}"
