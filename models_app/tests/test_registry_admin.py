"""The verbs of the registry's pages in the admin, in the administrator's name."""

from __future__ import annotations

import pytest

from kernel.models import history_of
from mlp.operators.tests.admin_world import fill
from mlp.operators.tests.test_admin_verbs import buttons, do
from models_app.models import Alias, ModelVersion, RegisteredModel, RegistryDelivery, RegistryWebhook

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]


def test_the_verbs_of_the_registry(staff_client, staff, alice):
    rows = fill(alice, staff)
    hook, sent = RegistryWebhook.objects.get(), RegistryDelivery.objects.get()
    assert buttons(staff_client, hook) == {"pause", "delete"}
    do(staff_client, hook, "pause")
    assert buttons(staff_client, hook) == {"resume", "delete"}
    do(staff_client, hook, "resume")
    do(staff_client, sent, "again")
    sent.refresh_from_db()
    assert (sent.open, sent.attempts) == (True, 0)

    alias, churn = Alias.objects.get(), RegisteredModel.objects.get()
    ModelVersion.objects.create(registered=churn, number=2, source="s3://elsewhere/2")
    missing = do(staff_client, alias, "move", version=7)
    assert missing.status_code == 200
    assert "no such version" in missing.content.decode()
    do(staff_client, alias, "move", version=2)
    alias.refresh_from_db()
    assert alias.version.number == 2
    assert (history_of(churn)[0].by, history_of(churn)[0].target) == ("operator:oscar", "2")
    do(staff_client, alias, "delete")
    do(staff_client, ModelVersion.objects.get(number=2), "delete")
    assert (Alias.objects.count(), ModelVersion.objects.count()) == (0, 1)
    assert rows["apps.rollout"].phase == "failed"
    assert buttons(staff_client, rows["apps.rollout"]) == {"again"}
    do(staff_client, churn, "delete")
    do(staff_client, hook, "delete")
    assert not RegisteredModel.objects.exists()
    assert not RegistryWebhook.objects.exists()
