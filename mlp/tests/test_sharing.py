"""Sharing: who reads another user's objects at their addresses, by pages and REST; nobody else does."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Share
from apps.models import Application
from automation.models import Sweep
from conftest import move
from datasets.models import Dataset
from jobs.models import Comparison, Job, Project
from kernel import storage
from kernel.models import StateChange
from mlp.operators.tests.admin_world import put
from mlp.tests.routes import object_routes, page_routes
from mlp.tests.tiers import later
from models_app.models import Model, RegisteredModel
from resources.models import Tenant
from tracking.compare import saved

from .page_world import fill, visible_text, visitor
from .recorded_world import move_recorded

pytestmark = pytest.mark.django_db

OBJECTS = {
    "job": (Job, "fit"),
    "dataset": (Dataset, "digits"),
    "model": (Model, "net"),
    "application": (Application, "calc"),
    "project": (Project, "vision"),
    "registeredmodel": (RegisteredModel, "churn"),
    "comparison": (Comparison, "rates"),
    "sweep": (Sweep, "tune"),
}
NEEDS = {"/search": "?q=x", "/code/diff": "?with=fit", "/address": "?file=model.pt"}  # what a call needs in its query
MAY = {"owner", "reader", "cloner", "member", "staff", "link"}
# Who asks for every second address, also in the quick tests: a role that is let in, and one that just is not.
NEAREST = {"reader", "revoked link"}, {"link", "ended"}
thoroughly = pytest.mark.parametrize("thorough", [False, later(True)])
# Calls that tell of other objects, or of who calls an application, and with what.
OF_OWNERS = ("/uses", "/keys", "/keys/shop", "/recording", "/records", "/records/1", "/records:export")
OF_OWNERS += ("/drift", "/drift/windows", "/drift/windows/1", "/shadow", "/shadow/pairs")
# What the segments of an address stand for, by the kind of the page.
SEGMENTS = {"int:number": "1", "seg:number": "1", "seg:alias": "latest", "seg:key": "shop"}
PATHS = {"dataset": "one.csv", "job": "ckpt/model.pt", "model": "model.pt"}
OF_PROJECT = dict.fromkeys(("traces", "trace", "evaluations", "evaluation"), "project")
QUERIED = {**OF_PROJECT, "compare": "job"}  # by what they are about
KIND_OF = {"compare": "job", "registered": "registeredmodel", **OF_PROJECT}  # a page's name
TRACE = "0af7651916cd43dd8448eb211c80319c"  # that of page_world


def share(row, **given) -> Share:
    given.setdefault("audience", "user")
    return Share.objects.create(owner=row.user, kind=row._meta.model_name, object_id=row.pk, name=row.name, **given)


def row_of(kind: str, user):
    model, name = OBJECTS[kind]
    return model.objects.get(user=user, name=name)


def shared_pages() -> dict[str, list[str]]:
    """Return the addresses of alice's objects that have their owner in them, by the kind of the object."""
    pages: dict[str, list[str]] = {kind: [] for kind in OBJECTS}
    for pattern in page_routes():
        route = str(pattern.pattern)
        if route.startswith("u/"):
            name = pattern.name.partition("_")[0]
            kind = KIND_OF.get(name, name)
            address = f"/{route}".replace("<seg:owner>", "alice").replace("runs/<str:name>", "runs/done")
            address = re.sub(r"<\w+:name>", OBJECTS[kind][1], address).replace("<path:path>", PATHS.get(kind, ""))
            address = address.replace("datasets/<str:key>", f"datasets/d-{TRACE}").replace("<str:key>", TRACE)
            pages[kind].append(address + {"project": "?project=vision", "job": "?job=fit"}.get(QUERIED.get(name), ""))
    return pages


def rest_reads() -> dict[str, list[str]]:
    """Return the addresses of the REST calls that read one of alice's objects, by its kind."""
    addresses: dict[str, list[str]] = {kind: [] for kind in OBJECTS}
    for route in object_routes():
        view = route.callback.view_class
        if "<seg:name>" in str(route.pattern) and "GET" in view.calls:
            kind = view.kind.replace(" ", "")
            address = str(route.pattern).replace("<seg:user>", "alice").replace("<seg:name>", OBJECTS[kind][1])
            for segment, value in SEGMENTS.items():
                address = address.replace(f"<{segment}>", value)
            query = next((each for end, each in NEEDS.items() if address.endswith(end)), "")
            addresses[kind].append("/api/v1/" + address.replace("<anypath:path>", PATHS.get(kind, "")) + query)
    return addresses


def fill_all(alice) -> None:
    """Give alice objects of all kinds, with their files."""
    fill(alice)
    move_recorded(Project.objects.create(user=alice, name="vision"))
    saved.save(alice, name="rates", jobs=["fit"])
    folder = storage.model_dir("alice", "net")
    folder.mkdir(parents=True)
    (folder / "model.pt").write_text("x")
    # a picture, for the address that sends nothing else
    (storage.job_dir("alice", "fit") / "ckpt" / "model.pt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))


@pytest.fixture(scope="module")
def files(keep_files):
    return keep_files(fill_all)


@pytest.fixture
def filled(files, alice):
    files()
    return alice


def readers(alice, make_user) -> dict[str, tuple]:
    """Return who opens alice's objects: a client, and what shares each of her objects `OBJECTS` with it."""
    other = Tenant.objects.create(name="other", cpu=1, gpu=0, ram=1024, rom=1 << 20)
    users = {name: make_user(name) for name in ("reader", "cloner", "stranger", "ended")}
    member, staff = make_user("member"), make_user("boss", is_staff=True)
    for user in (*users.values(), staff):
        move(user, other)
    yesterday = timezone.now() - timedelta(days=1)
    ways = {
        "owner": (alice, None),
        "reader": (users["reader"], {"user": users["reader"]}),
        "cloner": (users["cloner"], {"user": users["cloner"], "right": "clone"}),
        "ended": (users["ended"], {"user": users["ended"], "expires": yesterday}),
        "member": (member, {"audience": "tenant", "tenant": alice.tenant}),
        "stranger": (users["stranger"], None),
        "staff": (staff, None),
        "link": (None, {"audience": "link"}),
        "ended link": (None, {"audience": "link", "expires": yesterday}),
        "revoked link": (None, {"audience": "link", "revoked": yesterday}),
        "anonymous": (None, None),
    }
    clients = {}
    for role, (user, given) in ways.items():
        clients[role] = client = visitor(user)
        links = []
        for kind in OBJECTS if given is not None else ():
            hashed = {"token_hash": f"{role} {kind}"} if given.get("audience") == "link" else {}
            links.append(share(row_of(kind, alice), **given, **hashed).pk)
        if user is None and links:
            session = client.session
            session["links"] = links
            session.save()
    return clients


def asked(calls: dict[str, list[str]], roles, thorough: bool) -> list[tuple[str, list[str]]]:
    """Return the addresses, each with the roles that ask for it: all of them for the first of each kind."""
    return [
        (address, [role for role in roles if thorough or place == 0 or role in {"owner", *NEAREST[place % 2]}])
        for addresses in calls.values()
        for place, address in enumerate(addresses)
    ]


def answers(clients: dict, addresses: list[tuple[str, list[str]]]) -> dict[tuple[str, str], int]:
    """Return the status of each address for each of its roles."""
    behind = {"HTTP_X_SENDFILE_TYPE": "X-Accel-Redirect"}
    statuses = {}
    for each, role in ((each, role) for each, roles in addresses for role in roles):
        response = clients[role].get(each, **behind)
        list(response)  # to its end: a user has few streams at the same time
        statuses[each, role] = response.status_code
    return statuses


@thoroughly
def test_a_page_is_for_those_with_whom_its_object_is_shared(filled, make_user, thorough):
    clients, pages = readers(filled, make_user), shared_pages()
    assert {kind: len(pages[kind]) > 0 for kind in pages} == dict.fromkeys(OBJECTS, True)
    statuses = answers(clients, asked(pages, clients, thorough))
    assert len({role for _address, role in statuses}) == len(clients)
    shown = {address for (address, role), status in statuses.items() if role == "owner" and status == 200}
    assert len(shown) > 12
    users = {role for role, client in clients.items() if client.session.get("_auth_user_id")}
    wrong = {}
    for (address, role), status in statuses.items():
        hidden = 404 if role in users else 302
        if status != (statuses[address, "owner"] if role in MAY and address in shown else hidden) and role != "owner":
            wrong[address, role] = status
    assert wrong == {}


def refusal(response) -> str:
    """Return the message of a refusal, "" for an answer."""
    assert response.status_code in (200, 403)
    return response.json()["msg"] if response.status_code == 403 else ""


@thoroughly
def test_a_rest_call_reads_for_those_with_whom_the_object_is_shared(filled, make_user, thorough):
    clients, calls = readers(filled, make_user), rest_reads()
    assert len(calls["job"]) > 5
    wrong = {}
    for address, roles in asked(calls, clients, thorough):
        told = {role: refusal(clients[role].get(address)) for role in roles}
        for role, says in told.items():
            hidden = re.match(
                "(job|dataset|model|application|registered model|comparison|sweep): no such|not authenticated", says
            )
            may = role in (MAY if not address.endswith(OF_OWNERS) else {"owner", "staff"})
            if (says != told["owner"]) if may else not hidden:
                wrong[address, role] = says
    assert wrong == {}


def post(client, row, **fields):
    return client.post(f"/share/{row._meta.model_name}/{row.name}", {"audience": "user", **fields})


def link_of(response) -> str:
    return re.search(r"/shared/link\?key=[\w-]+", response.content.decode())[0]


def test_sharing_with_a_user_and_revoking(filled, make_user, bob):
    mine, hers, job = visitor(filled), visitor(bob), row_of("job", filled)
    page = "/u/alice/jobs/fit"
    assert hers.get(page).status_code == 404
    assert post(mine, job, user="bob").status_code == 302
    assert "Shared by alice, read only" in visible_text(hers.get(page))
    assert "fit" in visible_text(hers.get("/shared"))
    assert "alice" in visible_text(hers.get("/notifications"))
    assert "bob" in visible_text(mine.get("/share/job/fit"))
    assert "bob" in visible_text(mine.get("/shared/mine"))
    assert StateChange.objects.filter(kind="share", owner="alice", name="fit", target="shared", by="alice").exists()
    assert post(mine, job, user="bob", right="clone").status_code == 302
    row = Share.objects.get()
    assert (row.right, row.used is not None) == ("clone", True)
    assert hers.post(f"/shared/{row.pk}/revoke").status_code == 404
    assert mine.post(f"/shared/{row.pk}/revoke").status_code == 302
    assert hers.get(page).status_code == 404
    assert "fit" not in visible_text(hers.get("/shared"))
    assert StateChange.objects.filter(kind="share", target="revoked", reason__contains="bob").exists()


def test_the_owners_own_address_leads_its_readers_to_theirs(filled, make_user, bob):
    mine, hers, job = visitor(filled), visitor(bob), row_of("job", filled)
    assert hers.get("/jobs/fit").status_code == 404
    assert post(mine, job, user="bob").status_code == 302
    for path in ("/jobs/fit", "/jobs/fit/log?x=1"):
        assert hers.get(path)["Location"] == f"/u/alice{path}"
    assert hers.post("/jobs/fit/cancel").status_code == 404
    assert mine.get("/jobs/fit").status_code == mine.get("/u/alice/jobs/fit").status_code == 200
    other = make_user("carol")
    namesake = put(Job, other, "fit", "finished")
    assert post(visitor(other), namesake, user="bob").status_code == 302
    assert hers.get("/jobs/fit").status_code == 404, "whose is meant, nobody knows"
    put(Job, bob, "fit", "finished")
    assert hers.get("/jobs/fit").status_code == 200, "one's own comes first"


def test_a_link_opens_one_object_until_it_is_revoked(filled):
    mine, hers, job = visitor(filled), visitor(), row_of("job", filled)
    link = link_of(post(mine, job, audience="link"))
    token = link.partition("=")[2]
    assert Share.objects.get().expires is not None
    assert token not in str(Share.objects.values())
    opened = hers.get(link)
    assert (opened.status_code, opened["Location"]) == (302, "/u/alice/jobs/fit")
    assert opened["Referrer-Policy"] == "no-referrer"
    assert "no-store" in opened["Cache-Control"]
    shown = hers.get("/u/alice/jobs/fit")
    assert shown.status_code == 200
    assert b"main-nav" not in shown.content
    assert set(re.findall('action="([^"]*)"', shown.content.decode())) == {"/set_language"}
    assert hers.get("/u/alice/jobs/done").status_code == 302
    assert hers.get("/shared/link?key=" + token[::-1]).status_code == 404
    assert mine.post(f"/shared/{Share.objects.get().pk}/revoke").status_code == 302
    assert hers.get("/u/alice/jobs/fit").status_code == 302
    assert visitor().get(link).status_code == 404


def test_links_can_be_switched_off(filled, settings):
    mine, hers, job = visitor(filled), visitor(), row_of("job", filled)
    link = link_of(post(mine, job, audience="link"))
    hers.get(link)
    settings.SHARE_LINKS = False
    assert hers.get("/u/alice/jobs/fit").status_code == 302
    assert visitor().get(link).status_code == 404
    assert "switched off" in visible_text(post(mine, job, audience="link"))
    assert "Anyone with a link" not in visible_text(mine.get("/share/job/fit"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"user": "alice"}, "must be another user"),
        ({"user": "nobody"}, "no active user has this name"),
        ({"user": "bob", "expires": "2001-01-01"}, "must be a time within the next year"),
        ({"user": "bob", "expires": "9999-02-31"}, "must be a date"),
        ({"user": "bob", "expires": "soon"}, "must be a date"),
        ({"user": "bob", "right": "write"}, "must be one of read, clone"),
        ({"audience": "world"}, "must be one of user, tenant, link"),
    ],
)
def test_what_cannot_be_shared_is_refused_at_its_field(filled, bob, fields, says):
    response = post(visitor(filled), row_of("dataset", filled), **fields)
    assert response.status_code == 403
    assert says in visible_text(response)
    assert not Share.objects.exists()


def test_a_user_has_a_limited_number_of_shares(filled, bob, settings):
    settings.SHARES_PER_USER = 1
    mine = visitor(filled)
    assert post(mine, row_of("job", filled), user="bob").status_code == 302
    assert "revoke one first" in visible_text(post(mine, row_of("model", filled), user="bob"))
    assert post(mine, row_of("job", filled), user="bob", right="clone").status_code == 302


def test_a_share_ends_with_its_object(alice, bob):
    job, hers = put(Job, alice, "lone", "finished"), visitor(bob)
    share(job, user=bob)
    assert hers.get("/u/alice/jobs/lone").status_code == 200
    job.delete()
    put(Job, alice, "lone", "finished")
    assert hers.get("/u/alice/jobs/lone").status_code == 404
    assert not Share.objects.exists()


def test_an_account_that_is_deactivated_shares_nothing(alice, bob):
    job, hers = put(Job, alice, "lone", "finished"), visitor(bob)
    share(job, user=bob)
    accounts.deregister(username="alice", by="test")
    assert hers.get("/u/alice/jobs/lone").status_code == 404


def test_a_shared_project_shares_its_jobs(alice, bob):
    job, other = put(Job, alice, "lone", "finished"), put(Job, alice, "other", "finished")
    one, two = (Project.objects.create(user=alice, name=name) for name in ("one", "two"))
    Job.objects.filter(pk=job.pk).update(project=one)
    Job.objects.filter(pk=other.pk).update(project=two)
    hers = visitor(bob)
    assert post(visitor(alice), one, user="bob").status_code == 302
    assert hers.get("/u/alice/projects/one").status_code == 200
    assert hers.get("/u/alice/projects/two").status_code == 404
    assert hers.get("/u/alice/jobs/lone").status_code == 200
    assert hers.get("/u/alice/jobs/other").status_code == 404
    compared = visible_text(hers.get("/u/alice/compare?job=lone&job=other"))
    assert "lone" in compared
    assert "other" not in compared


def test_readers_see_no_values_of_the_environment_and_no_actions(alice, bob, as_bob, as_alice):
    job = put(Job, alice, "lone", "finished")  # its environment is {"SECRET": "hush"}
    share(job, user=bob)
    page = visitor(bob).get("/u/alice/jobs/lone").content.decode()
    assert "SECRET" in page
    assert "hush" not in page
    assert not re.search("<form[^>]*/jobs/", page)
    assert as_bob.call("get", "users/alice/jobs/lone").json()["env"]["SECRET"] != "hush"
    assert as_alice.call("get", "users/alice/jobs/lone").json()["env"]["SECRET"] == "hush"
    assert "hush" not in visible_text(visitor(bob).get("/u/alice/compare?job=lone"))


def test_shares_over_rest(filled, bob, as_alice, as_bob):
    body = {"kind": "dataset", "name": "digits", "audience": "user", "user": "bob", "expires": "2001-01-01"}
    assert "expires" in as_alice.call("post", "users/alice/shares", body).json()["msg"]
    response = as_alice.call(
        "post", "users/alice/shares", {**body, "expires": str(timezone.now().date() + timedelta(days=9))}
    )
    assert response.status_code == 201, response.content
    assert response.json()["address"] == "/u/alice/datasets/digits"
    assert response.json()["link"] == ""
    link = as_alice.call("post", "users/alice/shares", {"kind": "job", "name": "fit", "audience": "link"}).json()[
        "link"
    ]
    assert re.search(r"^http.*/shared/link\?key=", link)
    assert [entry["name"] for entry in as_alice.call("get", "users/alice/shares").json()] == ["fit", "digits"]
    assert [entry["owner"] for entry in as_bob.call("get", "users/bob/shared_with_me").json()] == ["alice"]
    number = response.json()["id"]
    assert as_bob.call("delete", f"users/alice/shares/{number}").status_code == 403
    assert as_bob.call("delete", f"users/bob/shares/{number}").status_code == 403
    assert as_bob.call("get", "users/alice/datasets/digits").status_code == 200
    assert as_bob.call("delete", "users/alice/datasets/digits").status_code == 403
    assert as_alice.call("delete", f"users/alice/shares/{number}").status_code == 200
    assert as_bob.call("get", "users/alice/datasets/digits").status_code == 403
    assert as_alice.call("delete", f"users/alice/shares/{number}").status_code == 403


def test_a_missing_object_and_one_that_is_not_shared_are_answered_alike(filled, bob):
    hers = visitor(bob)
    counts = []
    for name in ("fit", "not"):
        with CaptureQueriesContext(connection) as queries:
            answer = hers.get(f"/u/alice/jobs/{name}")
        counts.append((len(queries), answer.status_code, len(answer.content)))
    assert counts[0] == counts[1]
