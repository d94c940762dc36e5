"""What a job may reach: asked for by its owner, bounded by its tenant and by the machine's setting."""

from __future__ import annotations

import html
import json

import pytest
from django.urls import reverse

import runners
from jobs import environment
from jobs.models import Job
from mlp.tests.page_world import visitor
from mlp.tests.tiers import later
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)

SEEN = """
import errno, json, os, socket
def reached(port):
    with socket.socket() as link:
        link.settimeout(5)
        return link.connect_ex(("127.0.0.1", port)) != errno.ECONNREFUSED  # the relay answers, whatever is behind it
names = [name for name in ("MLP_API_URL", "MLP_NATS_URL", "http_proxy") if name in os.environ]
print(json.dumps([os.environ["MLP_NETWORK"], names, reached(PORT)]))
import mlp_report
"""


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


def bound(policy: str) -> None:
    Tenant.objects.update(network=policy)


def network_of_run() -> str:
    job = Job.objects.get(name="fit")
    job.run_name = "job-1-1"
    return environment.run_spec(job, job.user).network


@pytest.mark.parametrize(
    ("machine", "tenant", "asked", "has"),
    [
        ("open", "", None, "open"),
        ("open", "", "platform", "platform"),
        ("open", "platform", None, "platform"),
        ("open", "platform", "none", "none"),
        ("platform", "open", None, "platform"),
        ("none", "open", None, "none"),
    ],
)
def test_the_narrowest_policy_counts(as_alice, home, settings, machine, tenant, asked, has):
    settings.RUN_NETWORK = machine
    bound(tenant)
    fields = {"network": asked} if asked else {}
    response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", **fields})
    assert response.status_code == 201, response.content
    assert response.json()["network"] == has
    assert network_of_run() == has


@pytest.mark.parametrize(("tenant", "asked"), [("platform", "open"), ("none", "platform")])
def test_more_than_the_tenant_allows_is_refused(as_alice, home, tenant, asked):
    bound(tenant)
    response = as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", "network": asked})
    assert response.status_code == 403
    assert response.json() == {"msg": f"network: at most {tenant} is allowed in this tenant"}
    assert not Job.objects.exists()


def test_a_tenants_policy_that_is_narrowed_counts_for_queued_jobs(as_alice, home):
    as_alice.call("post", "users/alice/jobs", {"name": "fit", "entry": "train.py", "network": "open"})
    bound("platform")
    assert network_of_run() == "platform"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["network"] == "platform"


def test_an_administrator_sets_the_tenants_policy(as_alice, as_staff, staff_client, home):
    assert as_alice.call("get", "tenants/default").json()["network"] == "open"
    assert as_alice.call("put", "tenants/default", {"network": "none"}).status_code == 403
    changed = as_staff.call("put", "tenants/default", {"network": "platform"})
    assert (changed.status_code, changed.json()["network"]) == (200, "platform")
    assert Tenant.objects.get(name="default").source == "discovered", "the capacity still follows the machine"
    tenant = Tenant.objects.get(name="default")
    verb = reverse("admin:resources_tenant_verb", args=[tenant.pk, "network"])
    assert staff_client.post(verb, {"network": "none", "confirmed": "yes"}).status_code == 302
    assert as_alice.call("get", "tenants/default").json()["network"] == "none"
    assert staff_client.post(verb, {"network": "", "confirmed": "yes"}).status_code == 302
    assert as_alice.call("get", "tenants/default").json()["network"] == "open"


def test_the_form_offers_what_the_tenant_allows_and_a_copy_keeps_it(alice_client, home):
    bound("platform")
    page = alice_client.get("/jobs").content.decode()
    assert 'value="platform"' in page
    assert 'value="open"' not in page
    response = alice_client.post("/jobs", {"name": "fit", "entry": "train.py", "network": "none"})
    assert response.status_code == 302, response.content
    assert Job.objects.get(name="fit").network == "none"
    assert '<option value="none" selected>' in alice_client.get("/jobs?from=fit").content.decode()


def test_the_jobs_page_says_which_network_it_has(alice_client, home, monkeypatch):
    alice_client.post("/jobs", {"name": "fit", "entry": "train.py", "network": "platform"})
    runner = runners.get()
    page = html.unescape(alice_client.get("/jobs/fit").content.decode())
    assert runner.network("platform") in page
    shared = runners.confine.Confinement("none")
    monkeypatch.setattr(runner, "_confinement", shared)
    page = html.unescape(alice_client.get("/jobs/fit").content.decode())
    assert "the platform only (" in page
    assert "runs share the network of this machine)" in page


@pytest.mark.parametrize("policy", [later("open"), later("platform"), "none"])
def test_a_run_has_the_policys_network_and_no_more(as_alice, submit, until, settings, policy):
    job = until(submit(SEEN.replace("PORT", str(settings.GATEWAY_PORT)), network=policy), "finished")
    lines = as_alice.call("get", "users/alice/jobs/fit/log").content.decode().splitlines()
    named, names, reached = json.loads(lines[0])
    assert named == job.network_policy == policy
    assert ("MLP_API_URL" in names) == (policy != "none")
    if runners.get().confinement.network:
        assert reached == (policy != "none")
        proxied = policy == "platform" or (policy == "open" and not runners.get().confinement.route)
        assert ("http_proxy" in names) == proxied
    if policy == "none":
        assert lines[1] == "mlp_report: the network policy of this job is none: nothing is sent"
