"""The REST calls for a user's service accounts and their tokens. No named token can make them (accounts.scopes)."""

from __future__ import annotations

from kernel.effects import ACCOUNT
from kernel.errors import Refused
from kernel.views import Call, ContractView

from . import named_tokens, service_accounts
from .models import State
from .serializers import ServiceAccountIn, ServiceAccountOut, TokenIn, TokenMade, TokenOut


def owner_only(view: ContractView) -> None:
    """Refuse administrators the tokens of others, with which they would act in their names unrecorded."""
    if view.owner != view.request.user:
        raise Refused("only its owner gets a token; an administrator may replace or revoke it", field="user")


class AccountList(ContractView):
    kind = "service account"
    calls = {
        "GET": Call("List the service accounts", ACCOUNT, out=ServiceAccountOut, many=True,
                    states=tuple(State.values)),
        "POST": Call("Create a service account, which cannot log in", ACCOUNT, body=ServiceAccountIn,
                     out=ServiceAccountOut, status=201),
    }  # fmt: skip

    def get(self, request, user):
        return self.page(service_accounts.accounts_of(self.owner))

    def post(self, request, user):
        return self.answer(service_accounts.create(owner=self.owner, **self.body(), by=self.by))


class AccountDetail(ContractView):
    kind = "service account"
    calls = {
        "GET": Call("Get a service account", ACCOUNT, out=ServiceAccountOut),
        "DELETE": Call("End a service account: revoke tokens, cancel running work", ACCOUNT, out=ServiceAccountOut),
    }

    def get(self, request, user, name):
        return self.answer(service_accounts.get(self.owner, name))

    def delete(self, request, user, name):
        return self.answer(service_accounts.end(owner=self.owner, name=name, by=self.by))


class AccountTokens(ContractView):
    kind = "service account"
    calls = {
        "GET": Call("List the tokens of a service account", ACCOUNT, out=TokenOut, many=True),
        "POST": Call("Make a token of a service account; its text is shown once", ACCOUNT, body=TokenIn, out=TokenMade,
                     status=201),
    }  # fmt: skip

    def get(self, request, user, name):
        return self.page(named_tokens.tokens_of(service_accounts.get(self.owner, name)))

    def post(self, request, user, name):
        owner_only(self)
        account = service_accounts.get(self.owner, name)
        row, row.token = named_tokens.create(user=account, **self.body(), by=self.by)
        return self.answer(row)


class AccountToken(ContractView):
    kind = "service account"
    calls = {"DELETE": Call("Revoke a token of a service account: it stops working at once", ACCOUNT, out=TokenOut)}

    def delete(self, request, user, name, token):
        account = service_accounts.get(self.owner, name)
        row = named_tokens.tokens_of(account).filter(name=token).first()
        named_tokens.revoke(user=account, name=token, by=self.by)
        return self.answer(row)
