"""REST for saved searches, alert rules and alerts: users have their own, administrators see all."""

from __future__ import annotations

from aiops.judging import rules, searches
from aiops.models import Alert
from kernel.effects import DESTROY, READ
from kernel.pages import number_in
from kernel.views import Call, ContractView

from .alerts_serializers import (
    AlertOut,
    MuteIn,
    RuleChangeIn,
    RuleIn,
    RuleOut,
    SearchChangeIn,
    SearchIn,
    SearchOut,
)

ID = r"^[0-9]{1,17}$"
FIRST = {"parameters": {"id": "$response.body#/0/id"}}
MADE = {"parameters": {"id": "$response.body#/id"}}


class SavedSearches(ContractView):
    """A shared search shows those who run it the lines that they may see, never the owner's."""

    kind = "search"
    calls = {
        "GET": Call(
            "List saved searches: own ones, and those shared with a tenant of yours", READ, out=SearchOut, many=True
        ),
        "POST": Call("Save a search", body=SearchIn, out=SearchOut, status=201),
    }

    def get(self, request):
        return self.page(searches.visible(request.user))

    def post(self, request):
        return self.answer(searches.create(user=request.user, **self.body()))


class SavedSearchDetail(ContractView):
    kind = "search"
    segments = {"id": ID}
    calls = {
        "GET": Call("Get a saved search", READ, out=SearchOut, after={"getSavedSearches": FIRST}),
        "PUT": Call("Change a saved search", body=SearchChangeIn, out=SearchOut, after={"postSavedSearches": MADE}),
        "DELETE": Call("Delete a saved search", DESTROY, after={"postSavedSearches": MADE}),
    }

    def get(self, request, id):
        return self.answer(searches.find(request.user, number_in(id)))

    def put(self, request, id):
        row = searches.changeable(request.user, number_in(id))
        return self.answer(searches.change(row, self.body()))

    def delete(self, request, id):
        searches.delete(searches.changeable(request.user, number_in(id)))
        return self.answer()


class AlertRules(ContractView):
    """A user's rule is about one namespace, by default the own one."""

    kind = "alert rule"
    calls = {
        "GET": Call("List alert rules, newest first", READ, out=RuleOut, many=True),
        "POST": Call("Create an alert rule", body=RuleIn, out=RuleOut, status=201),
    }

    def get(self, request):
        return self.page(rules.visible(request.user))

    def post(self, request):
        return self.answer(rules.create(request.user, self.body()))


class AlertRuleDetail(ContractView):
    kind = "alert rule"
    segments = {"id": ID}
    calls = {
        "GET": Call("Get an alert rule", READ, out=RuleOut, after={"getAlertRules": FIRST}),
        "PUT": Call("Change an alert rule", body=RuleChangeIn, out=RuleOut, after={"postAlertRules": MADE}),
        "DELETE": Call("Delete an alert rule with its alerts", DESTROY, after={"postAlertRules": MADE}),
    }

    def get(self, request, id):
        return self.answer(rules.find(request.user, number_in(id)))

    def put(self, request, id):
        return self.answer(rules.change(rules.find(request.user, number_in(id)), self.body()))

    def delete(self, request, id):
        rules.find(request.user, number_in(id)).delete()
        return self.answer()


class AlertRuleMute(ContractView):
    kind = "alert rule"
    segments = {"id": ID}
    calls = {
        "PUT": Call("Mute an alert rule for some time", body=MuteIn, out=RuleOut, after={"postAlertRules": MADE}),
    }

    def put(self, request, id):
        return self.answer(rules.mute(rules.find(request.user, number_in(id)), self.body()["seconds"]))


class Alerts(ContractView):
    kind = "alert"
    calls = {"GET": Call("List alerts that were sent, newest first", READ, out=AlertOut, many=True)}

    def get(self, request):
        return self.page(Alert.objects.filter(rule__in=rules.visible(request.user)).select_related("rule"))
