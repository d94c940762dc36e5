"""The User-manager's REST calls, one class for each path."""

from __future__ import annotations

from django.conf import settings
from django.urls import reverse
from rest_framework.permissions import AllowAny

from kernel.effects import ACCOUNT, READ
from kernel.errors import NOT_AUTHENTICATED, Refused
from kernel.pages import address
from kernel.views import Call, ContractView

from . import lifecycle, named_tokens, program_logins, throttle
from .auth import BearerAuthentication, PasswordAuthentication, SessionAuthentication, username_of_header
from .models import State, User
from .serializers import (
    ProgramLoginIn,
    ProgramLoginOut,
    ProgramTokenIn,
    ProgramTokenOut,
    TokenIn,
    TokenMade,
    TokenOut,
    UserIn,
    UserOut,
)  # fmt: skip
from .service_api import owner_only
from .signin import factors

STATES = tuple(State.values)


class UserList(ContractView):
    """Registration is open to all and rate-limited; only administrators can list users."""

    permission_classes = [AllowAny]
    calls = {
        "POST": Call("Register a user", body=UserIn, out=UserOut, status=201),
        "GET": Call("List users (administrators only)", READ, out=UserOut, many=True, states=STATES),
    }

    def post(self, request):
        body = self.body()
        staff = request.user is not None and request.user.is_authenticated and request.user.is_administrator
        if staff:
            return self.answer(lifecycle.register(**body, active=True, by=request.user.username))
        throttle.count_registration(throttle.client_address(request))
        with throttle.hashing():
            user = lifecycle.register(**body, active=not settings.REGISTRATION_NEEDS_APPROVAL, by=body["username"])
        return self.answer(user)

    def get(self, request):
        if request.user is None or not request.user.is_authenticated:
            raise Refused(NOT_AUTHENTICATED)
        if not request.user.is_administrator:
            raise Refused("only administrators can list the users", field="user")
        return self.page(User.objects.all())


class UserDetail(ContractView):
    calls = {
        "GET": Call("Get a user", READ, out=UserOut),
        "PUT": Call(
            "Deactivate the account: revoke tokens, cancel running work", ACCOUNT, out=UserOut, ignores_body=True
        ),
    }

    def get(self, request, user):
        return self.answer(self.owner)

    def put(self, request, user):
        return self.answer(lifecycle.deregister(username=self.owner.username, by=self.by))


class UserToken(ContractView):
    """With HTTP Basic (username and password), the session, or the token itself."""

    authentication_classes = [PasswordAuthentication, BearerAuthentication, SessionAuthentication]
    security = ("basic", "bearer", "session")
    calls = {"GET": Call("Get the token; it stays the same until rotated", ACCOUNT, out=str)}

    def get(self, request, user):
        by_password = isinstance(request.successful_authenticator, PasswordAuthentication)
        if by_password and factors.needed(request.user):
            raise Refused(
                "this account needs a second factor: use its token, from the account's page", field="password"
            )
        owner_only(self)
        return self.answer(lifecycle.token_of(self.owner))


class UserTokenRotate(ContractView):
    """An administrator who replaces the token of somebody else does not get the new one."""

    calls = {
        "PUT": Call(
            "Rotate the token: the old one no longer works; only its owner gets the new one, others an empty text",
            ACCOUNT,
            out=str,
        )
    }

    def put(self, request, user):
        token = lifecycle.rotate_token(user=self.owner, by=self.by)
        return self.answer(token if self.owner == self.request.user else "")


class TokenList(ContractView):
    """Named tokens, each with a scope and an end. A named token itself cannot make these calls."""

    calls = {
        "GET": Call("List the named tokens", ACCOUNT, out=TokenOut, many=True),
        "POST": Call("Make a named token; its text is shown once", ACCOUNT, body=TokenIn, out=TokenMade, status=201),
    }

    def get(self, request, user):
        return self.page(named_tokens.tokens_of(self.owner))

    def post(self, request, user):
        owner_only(self)
        row, text = named_tokens.create(user=self.owner, **self.body(), by=self.by)
        row.token = text
        return self.answer(row)


class ProgramLogins(ContractView):
    """A program asks to be confirmed by a user in a browser; anyone may ask, rate-limited."""

    permission_classes = [AllowAny]
    calls = {
        "POST": Call("Begin the log-in of a program", ACCOUNT, body=ProgramLoginIn, out=ProgramLoginOut, status=201)
    }

    def post(self, request):
        login, secret = program_logins.begin(self.body()["program"], throttle.client_address(request))
        login.secret, login.url = secret, f"{address(request)}{reverse('program_login')}"
        login.expires_s, login.poll_s = program_logins.LASTS_S, program_logins.POLL_S
        return self.answer(login)


class ProgramToken(ContractView):
    """With the secret of the log-in, until that is forgotten."""

    permission_classes = [AllowAny]
    calls = {
        "POST": Call(
            "Get the token that a user has allowed a program", ACCOUNT, body=ProgramTokenIn, out=ProgramTokenOut
        )
    }

    def post(self, request, code):
        return self.answer(program_logins.fetch(code.replace("-", ""), self.body()["secret"]))


class TokenDetail(ContractView):
    calls = {"DELETE": Call("Revoke a named token: it stops working at once", ACCOUNT, out=TokenOut)}

    def delete(self, request, user, name):
        row = named_tokens.tokens_of(self.owner).filter(name=name).first()
        named_tokens.revoke(user=self.owner, name=name, by=self.by)
        return self.answer(row)


class Auth(ContractView):
    """Bearer only. The HTTP server answers it directly (accounts.auth.auth); this is for the ASGI server."""

    authentication_classes: list = []
    permission_classes = [AllowAny]
    calls = {"GET": Call("Get the username of a token", out=str)}

    def get(self, request):
        return self.answer(username_of_header(request.META.get("HTTP_AUTHORIZATION", "")))
