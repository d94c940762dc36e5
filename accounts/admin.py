"""Users and tokens for administrators, and the admin's login form with the platform's login throttling."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import Count, Exists, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.forms import AuthenticationForm
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, list_address, moment, url_of
from kernel.errors import Refused, TooMany
from kernel.messages import Message, translate
from kernel.models import StateChange
from kernel.pages import safe_next

from . import lifecycle, logins, named_tokens, notice_admin, sessions
from .models import ADMINISTRATORS, State, Token, User
from .sharing import admin as share_admin
from .signin import entering, factors
from .tenancy import admin as member_admin


def waiting():
    """Return the registered users whom no administrator has activated yet; deactivated accounts are not among them."""
    activations = StateChange.objects.filter(kind="user", object_id=OuterRef("pk"), transition="activate")
    return User.objects.filter(~Exists(activations), state=State.NOT_ACTIVE)


# --- forms ------------------------------------------------------------------------------------------------------
class LoginForm(AuthenticationForm):
    """The admin's login form, throttled like the platform's own login."""

    def clean(self):
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username and password:  # else it is no attempt
            try:
                self.user_cache = logins.check(self.request, username, password)
            except TooMany as refused:
                raise ValidationError(translate(refused.problem))
            except Refused as refused:
                if not refused.field:  # the directory, not the password
                    raise ValidationError(translate(refused.problem))
                raise self.get_invalid_login_error()
            if factors.needed(self.user_cache):
                self.request.second_step = self.user_cache  # `login` below goes on with it
                raise ValidationError(_("This account needs a second factor."))
            self.confirm_login_allowed(self.user_cache)
        return self.cleaned_data


def password_field(label: str, **options) -> forms.CharField:
    widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})
    return forms.CharField(label=label, widget=widget, strip=False, **options)


class PasswordForm(forms.Form):
    password = password_field(
        _("New password"),
        help_text=format_lazy(
            _("{shortest} to 128 characters; not a common one."), shortest=settings.PASSWORD_MIN_LENGTH
        ),
    )
    again = password_field(_("Repeat the password"))

    def clean(self):
        cleaned = super().clean()
        again = cleaned.pop("again", None)
        if "password" in cleaned and again is not None and cleaned["password"] != again:
            self.add_error("again", _("The passwords do not match."))
        return cleaned


class UserForm(PasswordForm):
    username = forms.CharField(
        label=_("Username"),
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "autocapitalize": "none"}),
        help_text=_("1 to 50 letters a to z. It can never be changed or given to somebody else."),
    )
    is_staff = forms.BooleanField(
        label=_("Administrator"),
        required=False,
        widget=UnfoldBooleanSwitchWidget(),
        help_text=_("Can use this site, and can see and manage all users' objects."),
    )
    active = forms.BooleanField(
        label=_("Active immediately"), required=False, initial=True, widget=UnfoldBooleanSwitchWidget()
    )
    field_order = ["username", "password", "again", "active", "is_staff"]


class ServiceTokenForm(forms.Form):
    name = forms.CharField(
        label=_("Name"),
        widget=UnfoldAdminTextInputWidget(),
        help_text=_("The purpose of the token: 1 to 50 letters a to z."),
    )
    user = forms.ModelChoiceField(
        label=_("Administrator"),
        queryset=User.objects.none(),
        widget=UnfoldAdminSelectWidget(),
        help_text=_(
            "The administrator responsible for it. The token is revoked when this user is no longer an administrator."
        ),
    )

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["user"].queryset = User.objects.filter(ADMINISTRATORS, state=State.ACTIVED).order_by("username")


# --- users ------------------------------------------------------------------------------------------------------
class WaitingFilter(admin.SimpleListFilter):
    title = _("waiting for activation")
    parameter_name = "waiting"

    def lookups(self, request, model_admin):
        return [("yes", _("waiting"))]

    def queryset(self, request, queryset):
        return queryset.filter(pk__in=waiting()) if self.value() == "yes" else queryset


def _count(relation: str, **only) -> Coalesce:
    """Return the number of a user's rows in the relation, as a subquery: several joins would multiply the counts."""
    rows = User._meta.get_field(relation).related_model.objects.filter(user=OuterRef("pk"), **only)
    return Coalesce(Subquery(rows.order_by().values("user").annotate(n=Count("pk")).values("n")), 0)


def _not_oneself(user: User, by: str, problem: Message) -> None:
    if by == f"operator:{user.username}":
        raise Refused(problem)


def activate(user: User, *, by: str) -> None:
    lifecycle.activate(username=user.username, by=by)


def deregister(user: User, *, by: str) -> None:
    _not_oneself(user, by, Message("you cannot deactivate your own account; ask another administrator"))
    lifecycle.deregister(username=user.username, by=by)


def make_operator(user: User, *, by: str) -> None:
    lifecycle.set_staff(username=user.username, staff=True, by=by)


def take_back(user: User, *, by: str) -> None:
    _not_oneself(user, by, Message("you cannot revoke your own administrator rights; ask another administrator"))
    lifecycle.set_staff(username=user.username, staff=False, by=by)


def set_password(user: User, *, by: str, password: str) -> None:
    lifecycle.change_password(user=user, password=password, by=by)
    logins.forgive(user.username)


def rotate(user: User, *, by: str) -> None:
    lifecycle.rotate_token(user=user, by=by)


class _ChangedByAdministrators(LifecycleAdmin):
    """Accounts and tokens, which can give all rights: permissions show them, only who has all rights changes them."""

    def has_add_permission(self, request):
        return request.user.is_administrator and super().has_add_permission(request)

    def may(self, request, verb):
        return request.user.is_administrator and super().may(request, verb)


@admin.register(User)
class UserAdmin(_ChangedByAdministrators):
    icon = "group"
    list_display = ("username", "state_badge", "is_staff", "tenant_link", "dataset_count", "job_count", "created_at")
    list_filter = ("state", WaitingFilter, "is_staff", "tenant")
    search_fields = ("username",)
    search_help_text = _("Username")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("tenant",)
    create_form = UserForm
    fieldsets = (
        (None, {"fields": (("username", "state_badge"), ("is_staff", "tenant_link"), ("created", "last_login"))}),
        (_("Owned by this user"), {"fields": (("datasets_of", "jobs_of"), ("requests_of", "tokens_of"))}),
    )
    verbs = {
        "activate": Verb(label=_("Activate"), run=activate, transition="activate", icon="how_to_reg", tone="primary"),
        "password": Verb(label=_("Set password"), run=set_password, form=PasswordForm, icon="password", on_lists=False),
        "rotate": Verb(
            label=_("Replace API token"),
            run=rotate,
            when=lambda user: user.is_active,
            question=_("The user's API token stops working immediately. The new token is on the user's account page."),
            icon="autorenew",
            on_lists=False,
        ),
        "factors": Verb(
            label=_("Remove second factors"),
            run=factors.remove_all,
            when=lambda user: factors.has(user),
            question=_("For a user who has lost them. Their password alone logs in again, unless one is required."),
            icon="phonelink_erase",
            on_lists=False,
        ),
        "operator": Verb(
            label=_("Make administrator"),
            run=make_operator,
            when=lambda user: user.is_active and not user.is_administrator,
            question=_("An administrator can use this site, and can see and manage all users' objects."),
            icon="shield_person",
            on_lists=False,
        ),
        "takeback": Verb(
            label=_("Revoke administrator rights"),
            run=take_back,
            when=lambda user: user.is_staff,
            question=_("The user can no longer use this site, and the user's service tokens are revoked."),
            icon="remove_moderator",
            on_lists=False,
        ),
        "deregister": Verb(
            label=_("Deactivate account"),
            run=deregister,
            transition="deregister",
            question=_(
                "The user's tokens are revoked and running jobs are cancelled. Datasets and the username are kept."
            ),
            icon="person_off",
            tone="danger",
        ),
    }

    def get_queryset(self, request):
        """Return the users with both counts, all in one query."""
        active = _count("jobs", state__in=["creating", "running"])
        return super().get_queryset(request).annotate(n_jobs=active, n_datasets=_count("datasets"))

    def create(self, *, by, **values):
        return lifecycle.register(by=by, **values)

    def verb_done(self, request, name, obj):
        if name == "password" and obj.pk == request.user.pk:
            sessions.renew(request, obj)  # otherwise the new password would end this session as well
        elif name == "password":
            sessions.end_others(obj, keep="")

    @display(description=_("tenant"), ordering="tenant__name")
    def tenant_link(self, user: User) -> str:
        return link(url_of(user.tenant), user.tenant)

    @display(description=_("datasets"), ordering="n_datasets")
    def dataset_count(self, user: User) -> int:
        return user.n_datasets

    @display(description=_("active jobs"), ordering="n_jobs")
    def job_count(self, user: User) -> int:
        return user.n_jobs

    @display(description=_("datasets"))
    def datasets_of(self, user: User) -> str:
        return link(list_address("datasets_dataset", user__id__exact=user.pk), user.n_datasets)

    @display(description=_("jobs"))
    def jobs_of(self, user: User) -> str:
        text = gettext("%(all)s, %(active)s of them active") % {"all": user.jobs.count(), "active": user.n_jobs}
        return link(list_address("jobs_job", user__id__exact=user.pk), text)

    @display(description=_("resource requests"))
    def requests_of(self, user: User) -> str:
        return link(list_address("resources_resourcerequest", owner__exact=user.username), gettext("show"))

    @display(description=_("tokens"))
    def tokens_of(self, user: User) -> str:
        return link(list_address("accounts_token", user__id__exact=user.pk), user.tokens.count())


# --- tokens -----------------------------------------------------------------------------------------------------
def revoke(token: Token, *, by: str) -> None:
    if token.kind == Token.Kind.NAMED:
        named_tokens.revoke(user=token.user, name=token.name, by=by)
    else:
        lifecycle.revoke_service_token(pk=token.pk, by=by)


def replace(token: Token, *, by: str) -> None:
    lifecycle.rotate_token(user=token.user, by=by)


@admin.register(Token)
class TokenAdmin(_ChangedByAdministrators):
    """The owner, kind and age of each token. The token itself is shown once, when a service token is created."""

    icon = "key"
    list_display = ("title", "kind", "scope", "user_link", "created_at", "rotated_at", "expires_at")
    list_filter = ("kind", "scope")
    search_fields = ("user__username", "name")
    search_help_text = _("Username or the token's name")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    create_form = ServiceTokenForm
    times = ("created", "rotated", "expires")
    fieldsets = ((None, {"fields": (("title", "kind"), ("scope", "target"), "user_link", times, ("used", "address"))}),)
    verbs = {
        "replace": Verb(
            label=_("Replace"),
            run=replace,
            when=lambda token: token.kind == Token.Kind.USER and token.user.is_active,
            question=_("The user's API token stops working immediately. The new token is on the user's account page."),
            icon="autorenew",
        ),
        "revoke": Verb(
            label=_("Revoke"),
            run=revoke,
            when=lambda token: token.kind != Token.Kind.USER,
            question=_("Requests with this token are refused immediately."),
            icon="key_off",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("user")

    def create_initial(self, request):
        return {"user": request.user}

    def create(self, *, by, **values):
        text = lifecycle.create_service_token(by=by, **values)
        return text, Token.objects.filter(kind=Token.Kind.SERVICE, **values).latest("pk")

    def created(self, request, result):
        """Show the token in the response to the POST: it is not stored and cannot be shown again."""
        text, token = result
        self.note(request, token, gettext("Added") + f": {token.name}")
        context = {"token": text, "object": token, "title": gettext("Service token")}
        return self._page(request, "admin/lifecycle/token.html", context)

    @display(description=_("expires"), ordering="expires")
    def expires_at(self, token: Token) -> str:
        return moment(token.expires)

    @display(description=_("rotated"), ordering="rotated")
    def rotated_at(self, token: Token) -> str:
        return moment(token.rotated)

    @display(description=_("token"), ordering="name")
    def title(self, token: Token) -> str:
        return token.name or gettext("API token")

    @display(description=_("user"), ordering="user__username")
    def user_link(self, token: Token) -> str:
        return link(url_of(token.user), token.user)


def own_password(request, extra_context=None) -> HttpResponse:
    """Redirect to the user's "Set password" page: Django's own password page would bypass the lifecycle."""
    return HttpResponseRedirect(reverse("admin:accounts_user_verb", args=[request.user.pk, "password"]))


open_login = admin.site.login


def login(request, extra_context=None) -> HttpResponse:
    """Show and take the admin's form; after a log-in the browser is known like after one at the platform's own form."""
    response = open_login(request, extra_context)
    if getattr(request, "second_step", None) is not None:
        return entering.enter(request, request.second_step, safe_next(request, reverse("admin:index")))
    if request.method == "POST" and response.status_code == 302 and request.user.is_authenticated:
        sessions.prove(request)
    entered = request.method == "POST" and response.status_code == 302 and request.user.is_authenticated
    return logins.entered(request, response, request.user) if entered else response


__all__ = ["member_admin", "notice_admin", "share_admin", "waiting"]  # imported for the admins that they register

admin.site.unregister(Group)
admin.site.login_form = LoginForm
admin.site.login = login
admin.site.password_change = own_password
