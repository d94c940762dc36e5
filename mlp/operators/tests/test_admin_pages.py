"""Every page of the admin opens, for every registered model; lists do not grow in queries; nothing secret is shown."""

from __future__ import annotations

import copy
import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format

from accounts import lifecycle as accounts
from accounts.models import Token, User
from apps.models import Application
from conftest import add_user
from datasets.models import Dataset
from jobs.models import Job, Metrics
from kernel.admin import LifecycleAdmin
from kernel.admin_display import url_of
from mlp.tests.tiers import TENTH, few, later
from resources import tcc
from resources.models import UsageSample, UserLimit

from .admin_world import fill, put

pytestmark = pytest.mark.django_db

MODELS = sorted(model._meta.label_lower for model in admin.site._registry)
OPENED_MAX = ["accounts.user", "apps.application", "datasets.dataset", "jobs.job", "models_app.model"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CREATED_HERE = {
    "accounts.user", "accounts.token", "accounts.membership", "resources.tenant", "resources.userlimit",
    "jobs.failurerule", "datasets.bucket",
}  # fmt: skip


@pytest.fixture(scope="module")
def filled(keep):
    return keep(lambda alice: fill(alice, add_user("oscar", is_staff=True)))


@pytest.fixture
def world(filled):
    return copy.deepcopy(filled)


@pytest.fixture
def staff(filled):
    return User.objects.get(username="oscar")


def address(label: str, page: str, *args) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{page}", args=args)


def test_dates_have_the_form_of_all_pages(staff_client, alice):
    job = put(Job, alice, "fit", "running")
    for address in (reverse("admin:jobs_job_changelist"), url_of(job)):
        text = staff_client.get(address).content.decode()
        shown = date_format(timezone.localtime(job.created), "DATETIME_FORMAT")
        assert re.search(rf'<time[^>]*data-time="whole"[^>]*>{re.escape(shown)} UTC</time>', text), address


def test_every_model_of_the_platform_is_registered():
    ours = {"accounts", "resources", "datasets", "jobs", "models_app", "apps", "kernel"}
    registered = {model for model in admin.site._registry if model._meta.app_label in ours}
    assert {model._meta.label_lower for model in registered} >= {
        "accounts.user",
        "accounts.token",
        "resources.tenant",
        "resources.resourcerequest",
        "datasets.dataset",
        "jobs.job",
        "jobs.metrics",
        "models_app.model",
        "apps.application",
        "kernel.statechange",
    }
    assert all(isinstance(admin.site._registry[model], LifecycleAdmin) for model in registered)
    assert Group not in admin.site._registry


def wrong_answers(client, pages: dict, query: dict | None = None) -> dict[str, int]:
    """Return the status of each page that does not open, by its model."""
    answers = {label: client.get(page, query).status_code for label, page in pages.items()}
    return {label: status for label, status in answers.items() if status != 200}


@pytest.mark.parametrize("part", TENTH)
def test_every_list_can_be_searched(staff_client, world, part):
    """That each opens without a search is seen below, where its queries are counted."""
    assert [label for label in MODELS if label not in world] == [], "mlp/operators/tests/admin_world.py makes none"
    assert [label for label in MODELS if not admin.site._registry[type(world[label])].search_fields] == []
    lists = {label: address(label, "changelist") for label in MODELS[part]}
    assert wrong_answers(staff_client, lists, {"q": "alice"}) == {}


@pytest.mark.long
def test_every_list_says_that_nothing_is_found(staff_client):
    pages = {label: address(label, "changelist") for label in MODELS}
    assert wrong_answers(staff_client, pages, {"q": "no-such-thing"}) == {}


@pytest.mark.parametrize("part", TENTH)
def test_no_object_is_changed_by_a_form(staff_client, world, part):
    answers = {label: staff_client.post(url_of(world[label]), {"name": "other"}).status_code for label in MODELS[part]}
    assert answers == dict.fromkeys(MODELS[part], 403)


@pytest.mark.parametrize("labels", [OPENED_MAX, later(MODELS)], ids=["some", "all"])
def test_object_pages_and_histories_open(staff_client, world, labels):
    """All object pages are opened with hostile text in them, too: see test_hostile_words.py."""
    histories = {label: address(label, "history", world[label].pk) for label in labels}
    assert wrong_answers(staff_client, histories) == {}
    for label in labels:
        page = staff_client.get(url_of(world[label]))
        assert page.status_code == 200, label
        assert b'name="_save"' not in page.content, f"{label}: fields belong to the lifecycle"


def test_only_objects_with_a_create_function_can_be_added(staff_client, world):
    for label in MODELS:
        page = staff_client.get(address(label, "add"))
        assert page.status_code == (200 if label in CREATED_HERE else 403), label


@pytest.mark.long
def test_djangos_own_deletion_is_disabled(staff_client, world):
    for label in MODELS:
        obj = world[label]
        answer = staff_client.post(address(label, "delete", obj.pk), {"post": "yes"})
        has_verb = "delete" in admin.site._registry[type(obj)].verbs
        assert answer.status_code == (302 if has_verb else 403), label
        assert type(obj)._default_manager.filter(pk=obj.pk).exists(), label
        selected = {"action": "delete_selected", "_selected_action": [obj.pk]}
        staff_client.post(address(label, "changelist"), selected)
        assert type(obj)._default_manager.filter(pk=obj.pk).exists(), label


@pytest.mark.parametrize("app", few(sorted({label.partition(".")[0] for label in MODELS}), 2))
def test_app_pages_open(staff_client, app):
    assert staff_client.get(reverse("admin:app_list", args=[app])).status_code == 200


def test_a_missing_object_redirects_with_a_message(staff_client):
    answer = staff_client.get(reverse("admin:jobs_job_change", args=[12345]), follow=True)
    assert answer.status_code == 200
    assert "exist" in str(next(iter(answer.context["messages"])))


# --- what must not be shown ---------------------------------------------------------------------------------------
def test_no_page_shows_a_token_or_what_it_is_derived_from(staff_client, world, alice):
    token = Token.objects.get(user=alice)
    job = world["jobs.job"]
    hidden = [accounts.token_of(alice), token.nonce, job.nonce, "hush", alice.password]
    for page in (url_of(token), url_of(alice), url_of(job), address("accounts.token", "changelist")):
        text = staff_client.get(page).content.decode()
        assert not any(secret in text for secret in hidden), page


def test_text_of_users_is_escaped(staff_client, alice):
    job = put(Job, alice, "hostile", "creating")
    job.fail(by="runner", reason="<script>alert(1)</script>")
    job.args = ["<b>bold</b>"]
    job.save()
    for page in (
        url_of(job),
        address("jobs.job", "changelist"),
        address("kernel.statechange", "changelist"),
        "/admin/",
    ):
        text = staff_client.get(page).content.decode()
        assert "<script>alert(1)" not in text
        assert "<b>bold" not in text


# --- queries --------------------------------------------------------------------------------------------------------
def queries(client, page: str) -> int:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(page).status_code == 200
    return len(seen)


def add_rows(make_user, staff, first: str, number: int) -> None:
    """Add `number` rows of every model."""
    for index in range(number):
        name = first + LETTERS[index // 26] + LETTERS[index % 26]
        user = make_user(name)
        job = put(Job, user, "train", "running")
        put(Dataset, user, "digits", "error")
        put(Application, user, "calc", "error")
        tcc.try_(id=name, applier="jm", request_type="request", ram=100)
        accounts.create_service_token(user=staff, name=name, by="test")
        Metrics.objects.create(job=job, seq=1, epoch=1, accuracy=0.5, loss=1.0, progress=10, msg_id="one")
        UsageSample.objects.create(tenant=user.tenant, at=job.created, owner=name, applier="jm", cpu=1)
        UserLimit.objects.create(tenant=user.tenant, user=name)


@pytest.mark.parametrize("part", TENTH)
def test_lists_of_ten_rows_cost_no_more_queries_than_short_ones(staff_client, world, make_user, staff, part):
    add_rows(make_user, staff, "few", 2)

    def with_more_rows(pages: list[str]) -> dict[str, int]:
        before = transaction.savepoint()
        add_rows(make_user, staff, "many", 8)
        counts = {page: queries(staff_client, page) for page in pages}
        transaction.savepoint_rollback(before)
        return counts

    staff_client.get(address("jobs.failurerule", "changelist"))  # the first look stores the rules that are shipped
    pages = [address(label, "changelist") for label in MODELS[part]] + ["/admin/"]
    many = with_more_rows(pages)
    few = {page: queries(staff_client, page) for page in pages}
    many |= with_more_rows([page for page in pages if many[page] != few[page]])  # the first look fills caches
    assert {page: (few[page], many[page]) for page in pages if few[page] != many[page]} == {}
    assert max(few.values()) <= 27, few
