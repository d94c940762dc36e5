"""Buckets for operators; changed through datasets.buckets.rows only."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from kernel.admin import LifecycleAdmin, Verb
from resources.models import Tenant

from ..models import Bucket
from . import rows
from .store import Store

FIELDS = ("endpoint", "bucket", "prefix", "region", "virtual_hosted", "signing", "access_key", "access", "everybody")
REGION = "us-east-1"


class ChangeForm(forms.Form):
    endpoint = forms.CharField(
        label=_("Address of the server"),
        required=False,
        max_length=300,
        widget=UnfoldAdminTextInputWidget(),
        help_text=_("such as https://s3.example.com:9000; leave empty for AWS"),
    )
    bucket = forms.CharField(label=_("Bucket"), max_length=255, widget=UnfoldAdminTextInputWidget())
    prefix = forms.CharField(
        label=_("Folder"),
        required=False,
        max_length=500,
        widget=UnfoldAdminTextInputWidget(),
        help_text=_("Only what is below it can be read or written."),
    )
    region = forms.CharField(label=_("Region"), max_length=63, initial=REGION, widget=UnfoldAdminTextInputWidget())
    virtual_hosted = forms.BooleanField(
        label=_("Bucket as part of the host name"), required=False, widget=UnfoldBooleanSwitchWidget()
    )
    signing = forms.ChoiceField(
        label=_("Requests are signed"), choices=Bucket.Signing.choices, widget=UnfoldAdminSelectWidget()
    )
    access_key = forms.CharField(
        label=_("Access key"), required=False, max_length=200, widget=UnfoldAdminTextInputWidget()
    )
    secret = forms.CharField(
        label=_("Secret key"),
        required=False,
        max_length=1000,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text=_("It is stored encrypted. Leave it empty to keep the one of this access key."),
    )
    access = forms.ChoiceField(
        label=_("Right"),
        choices=Bucket.Access.choices,
        initial=Bucket.Access.READ,
        required=False,
        widget=UnfoldAdminSelectWidget(),
        help_text=_("With “read and write”, users send datasets, models and outputs of jobs there."),
    )
    everybody = forms.BooleanField(label=_("All users may use it"), required=False, widget=UnfoldBooleanSwitchWidget())
    tenants = forms.ModelMultipleChoiceField(
        label=_("Tenants whose members may use it"),
        required=False,
        queryset=Tenant.objects.order_by("name"),
        widget=UnfoldAdminSelectMultipleWidget(),
    )

    def clean_access(self) -> str:
        return self.cleaned_data["access"] or Bucket.Access.READ


class CreateForm(ChangeForm):
    name = forms.CharField(
        label=_("Name"),
        max_length=63,
        widget=UnfoldAdminTextInputWidget(),
        help_text=_("Users write s3/{name}/{path}; best the name of the bucket."),
    )
    field_order = ["name"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["secret"].help_text = _("It is stored encrypted.")


@admin.register(Bucket)
class BucketAdmin(LifecycleAdmin):
    icon = "cloud_download"
    list_display = ("name", "server", "bucket", "prefix", "access", "readers", "created_at")
    search_fields = ("name", "bucket", "endpoint")
    search_help_text = _("Name, bucket or address")
    ordering = ("name",)
    create_form = CreateForm
    fieldsets = (
        (None, {"fields": (("name", "access", "readers"), ("server", "region"), ("bucket", "prefix"), "mounted")}),
        (_("Requests"), {"fields": (("signing", "access_key"), "virtual_hosted")}),
        (_("When"), {"fields": ("created",)}),
    )
    verbs = {
        "test": Verb(label=_("Test access"), run=lambda row, *, by: Store(row).test(), icon="network_check"),
        "change": Verb(
            label=_("Change"),
            run=rows.change,
            form=ChangeForm,
            initial=lambda row: {name: getattr(row, name) for name in FIELDS} | {"tenants": row.tenants.all()},
            icon="tune",
            tone="primary",
            on_lists=False,
        ),
        "delete": Verb(
            label=_("Delete"),
            run=rows.delete,
            question=_(
                "The platform forgets the bucket and its keys. Datasets that were copied from it stay. It cannot be "
                "deleted while files of external datasets or models are in it."
            ),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).prefetch_related("tenants")

    def create(self, *, by, **values):
        return rows.create(by=by, **values)

    @display(description=_("address of the server"), ordering="endpoint")
    def server(self, row: Bucket) -> str:
        return row.endpoint or "AWS"

    @display(description=_("mounted for jobs"))
    def mounted(self, row: Bucket) -> str:
        return settings.BUCKET_MOUNTS.get(row.name, "-")

    @display(description=_("who may use it"))
    def readers(self, row: Bucket) -> str:
        if row.everybody:
            return gettext("all users")
        return ", ".join(sorted(tenant.name for tenant in row.tenants.all())) or "-"
