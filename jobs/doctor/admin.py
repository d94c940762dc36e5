"""Failure rules in the admin: the shipped ones, which can be disabled and reordered, and the administrators' own."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from jobs.models import Action, Diagnosis, FailureRule, Where
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, url_of
from kernel.messages import filled, translate, word

from . import rules

LOOKED_AT = 200  # recent failures
SHOWN = 20


def _help(name: str) -> str:
    return FailureRule._meta.get_field(name).help_text


class OrderForm(forms.Form):
    order = forms.IntegerField(
        label=_("order"), min_value=0, max_value=1000, widget=UnfoldAdminIntegerFieldWidget(), help_text=_help("order")
    )


class RuleForm(OrderForm):
    """The fields of an administrator's own rule."""

    title = forms.CharField(label=_("title"), max_length=120, widget=UnfoldAdminTextInputWidget())
    title_zh = forms.CharField(
        label=_("title in Chinese"), max_length=120, required=False, widget=UnfoldAdminTextInputWidget()
    )
    pattern = forms.CharField(
        label=_("pattern"), max_length=1000, widget=UnfoldAdminTextInputWidget(), help_text=_help("pattern")
    )
    where = forms.ChoiceField(label=_("searched in"), choices=Where.choices, widget=UnfoldAdminSelectWidget())
    example = forms.CharField(
        label=_("example"), max_length=4000, widget=UnfoldAdminTextareaWidget(), help_text=_help("example")
    )
    explanation = forms.CharField(
        label=_("explanation"), max_length=2000, widget=UnfoldAdminTextareaWidget(), help_text=_help("explanation")
    )
    explanation_zh = forms.CharField(
        label=_("explanation in Chinese"), max_length=2000, required=False, widget=UnfoldAdminTextareaWidget()
    )
    action = forms.ChoiceField(
        label=_("button"), choices=Action.choices, required=False, widget=UnfoldAdminSelectWidget()
    )
    field_order = [
        "title", "title_zh", "pattern", "where", "example", "explanation", "explanation_zh", "action", "order",
    ]  # fmt: skip


def change(rule: FailureRule, *, by: str, **values) -> None:
    for name, value in values.items():
        setattr(rule, name, value)
    rules.save(rule)


def is_own(rule: FailureRule) -> bool:
    return not rule.shipped


@admin.register(FailureRule)
class FailureRuleAdmin(LifecycleAdmin):
    icon = "troubleshoot"
    list_display = ("shown_title", "origin", "where", "action_text", "order", "active", "explained")
    list_filter = ("active", "where", "action")
    search_fields = ("title", "pattern", "explanation", "shipped")
    search_help_text = _("Title, pattern, explanation or key")
    ordering = ("order", "pk")
    create_form = RuleForm
    fieldsets = (
        (None, {"fields": (("shown_title", "origin"), ("where", "order", "active"), "pattern", "example")}),
        (_("Explanation"), {"fields": ("explanation_text", "title_zh", "explanation_zh", "action_text")}),
        (_("Recent failures"), {"fields": ("matches",)}),
    )
    verbs = {
        "change": Verb(
            label=_("Change"),
            run=change,
            when=is_own,
            form=RuleForm,
            initial=lambda rule: {name: getattr(rule, name) for name in RuleForm.base_fields},
            icon="edit",
            tone="primary",
            on_lists=False,
        ),
        "order": Verb(
            label=_("Set order"),
            run=change,
            form=OrderForm,
            initial=lambda rule: {"order": rule.order},
            icon="swap_vert",
        ),
        "activate": Verb(
            label=_("Activate"),
            run=lambda rule, *, by: change(rule, by=by, active=True),
            when=lambda rule: not rule.active,
            icon="check",
        ),
        "deactivate": Verb(
            label=_("Deactivate"),
            run=lambda rule, *, by: change(rule, by=by, active=False),
            when=lambda rule: rule.active,
            icon="block",
        ),
        "delete": Verb(
            label=_("Delete"),
            run=lambda rule, *, by: FailureRule.objects.filter(pk=rule.pk).delete(),
            when=is_own,
            question=_("Its existing diagnoses are kept."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def create(self, *, by: str, **values) -> FailureRule:
        return rules.save(FailureRule(**values))

    def create_initial(self, request) -> dict:
        return {"order": 50, "where": Where.EXCEPTION}

    def changelist_view(self, request, extra_context=None):
        rules.sync()
        return super().changelist_view(request, extra_context)

    @display(description=_("title"), ordering="title")
    def shown_title(self, rule: FailureRule) -> str:
        return translate(word(rule.title)) if rule.shipped else rule.title

    @display(description=_("comes with the platform"), boolean=True)
    def origin(self, rule: FailureRule) -> bool:
        return bool(rule.shipped)

    @display(description=_("explanation"))
    def explanation_text(self, rule: FailureRule) -> str:
        return gettext(rule.explanation) if rule.shipped else rule.explanation

    @display(description=_("button"), ordering="action")
    def action_text(self, rule: FailureRule) -> str:
        return str(Action(rule.action).label)

    @display(description=_("failures explained"))
    def explained(self, rule: FailureRule) -> int:
        return rule.explained

    def get_queryset(self, request):
        return rules.with_counts(super().get_queryset(request))

    @display(description=_("matches"))
    def matches(self, rule: FailureRule) -> SafeString | str:
        recent = Diagnosis.objects.select_related("job__user").order_by("-pk")[:LOOKED_AT]
        matching = [diagnosis for diagnosis in recent if rules.matches(rule, diagnosis)]
        links = ((link(url_of(diagnosis.job), diagnosis.job),) for diagnosis in matching[:SHOWN])
        text = filled(gettext("%(count)s of the last %(all)s failures"), {"count": len(matching), "all": len(recent)})
        return format_html_join("", "{}", [(text,)]) + format_html_join("", " · {}", links)
