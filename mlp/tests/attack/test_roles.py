"""Every address of the platform with every role in a tenant: nothing that the role was not given is read or done.

The calls come from the schema, with bodies that fit it; what each role may do is what docs/tenants.md says. A call
below `/tenants/` that is not in MAY is for the platform's administrators: a new one fails here until it is decided.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from accounts.models import Membership, User
from accounts.tenancy import members
from conftest import Api, add_user, move
from jobs.models import Job
from mlp.tests.attack.test_tokens import LEAD_READS, OPEN, VALUES, answer, attacked, let_in, pages, snapshot
from mlp.tests.page_world import visitor
from mlp.tests.rest_schema import rest_schema
from mlp.tests.test_sharing import OBJECTS, row_of, shared_pages
from mlp.tests.tiers import TENTH, later
from resources.models import Tenant

pytestmark = pytest.mark.django_db

ROLES = ("stranger", "viewer", "member", "lead", "elsewhere")  # the last administers another tenant
ALL_IN_IT = {"viewer", "member", "lead"}
TENANT = "/api/v1/tenants/default"
MAY = {
    ("get", TENANT): ALL_IN_IT,
    ("get", f"{TENANT}/usage"): ALL_IN_IT,
    ("get", f"{TENANT}/limits"): ALL_IN_IT,
    ("get", f"{TENANT}/members"): ALL_IN_IT,
    ("get", f"{TENANT}/members/alice"): {"lead"},
    ("get", f"{TENANT}/limits/alice"): {"lead"},
    ("put", f"{TENANT}/members/alice"): {"lead"},
    ("delete", f"{TENANT}/members/alice"): {"lead"},
    ("put", f"{TENANT}/limits/alice"): {"lead"},
    ("delete", f"{TENANT}/limits/alice"): {"lead"},
    ("get", f"{TENANT}/work"): {"lead"},
    ("get", f"{TENANT}/rollouts"): {"lead"},
    ("put", f"{TENANT}/work:end"): {"lead"},
}
OF_NOBODY: dict[tuple[str, str], str] = {}  # what is said of a user who does not exist: the same to everybody
DENIED = re.compile("no such|only|administrator|requires|token: ")


def filled_in(schema: dict, components: dict):
    """Return a value that fits a schema: its required parts, the first choice, the least number."""
    if "$ref" in schema:
        return filled_in(components[schema["$ref"].rpartition("/")[2]], components)
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return filled_in(schema[several][0], components)
    if "enum" in schema:
        return next(choice for choice in schema["enum"] if choice)
    match schema.get("type"):
        case "object":
            wanted = schema.get("required", [])
            return {name: filled_in(schema["properties"][name], components) for name in wanted}
        case "array":
            return []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return "alicealice" if schema.get("format") == "password" else "fit"


@cache
def calls() -> list[tuple[str, str, object]]:
    """Return (method, path, body) of each call of the REST schema, about alice's objects in the default tenant."""
    schema, calls = rest_schema(), []
    values = {**VALUES, "name": "fit", "id": "999999"}  # an id that nobody has: what a role makes for itself is its own
    for path, methods in schema["paths"].items():
        of_tenant = path.startswith("/api/v1/tenants/{tenant}/")
        named = {**values, "name": "alice"} if of_tenant else values
        address = re.sub(r"\{(\w+)\}", lambda name, named=named: named[name.group(1)], path)
        for method, said in methods.items():
            if method in {"get", "post", "put", "delete", "patch"}:
                content = said.get("requestBody", {}).get("content", {}).get("application/json", {})
                body = filled_in(content.get("schema", {}), schema["components"]["schemas"]) if content else None
                calls.append((method, address, {"kind": "job", "user": "alice", "name": "fit"}
                              if address.endswith("work:end") else body))  # fmt: skip
    assert len(calls) > 150
    return calls


def with_roles(alice) -> None:
    """Make objects of alice's of every kind in the default tenant, and a user of each role."""
    attacked(alice)
    other = Tenant.objects.create(name="other", cpu=1, ram=1000, rom=1000)
    for role in ROLES:
        user = add_user(role)
        if role in ("stranger", "elsewhere"):
            move(user, other)
        members.put(
            tenant="other" if role in ("stranger", "elsewhere") else "default", user=role, by="test",
            role={"lead": "admin", "elsewhere": "admin", "stranger": "viewer"}.get(role, role),
        )  # fmt: skip


class Clients(dict):
    """A client of each role, made when it is first asked for."""

    def __missing__(self, role: str) -> Api:
        own = visitor(User.objects.get(username=role))
        client = self[role] = Api(own.get(f"/api/v1/users/{role}/token").json())
        client.pages = own
        return client


@pytest.fixture(scope="module")
def files_with_roles(keep_files):
    return keep_files(with_roles)


@pytest.fixture
def world(files_with_roles) -> Clients:
    files_with_roles()
    return Clients()


def state() -> tuple:
    """Return everything that a call might have changed, also the members."""
    return snapshot(), sorted(Membership.objects.values_list("user__username", "tenant__name", "role"))


@pytest.mark.parametrize("role", ROLES)
def test_of_a_tenants_calls_a_role_has_those_that_it_was_given(world, role):
    tried = {True: 0, False: 0}
    members.put(tenant="other", user="alice", role="viewer", by="test")  # so that she can be removed from the other
    before = state()
    for method, path, body in calls():
        if not (path.startswith(TENANT) or path == "/api/v1/tenants"):
            continue
        may = role in MAY.get((method, path), set()) or (method, path) == ("get", "/api/v1/tenants")
        response = world[role].call(method, path.removeprefix("/api/v1/"), body)
        if may:
            assert response.status_code == 200, (method, path, response.content)
            if method == "delete" and "members" in path:
                members.put(tenant="default", user="alice", role="member", by="test")
            before = state() if method != "get" else before
        else:
            assert response.status_code == 403, (method, path)
            assert DENIED.search(response.json()["msg"]), (method, path, response.json())
            assert state() == before, (method, path)
        tried[may] += 1
    assert tried[False] >= 3
    assert tried[True] > (9 if role == "lead" else 0)


@pytest.mark.parametrize(
    "role", ["lead", later("elsewhere"), later("viewer"), later("stranger")]
)  # test_tokens: member
def test_of_another_users_objects_only_the_tenants_administrator_reads_and_nobody_changes(world, role):
    before, read = state(), set()
    for method, path, body in calls():
        if "/users/alice" not in path:
            continue
        given = body if method in {"post", "put", "patch"} else None
        mine = world[role].call(method, path.removeprefix("/api/v1/"), given)
        if (method, path) not in OF_NOBODY:
            address = path.removeprefix("/api/v1/").replace("alice", "nobody")
            OF_NOBODY[method, path] = world["stranger"].refused(method, address, given)
        if mine.status_code == 403 and mine.json()["msg"].replace("alice", "nobody") == OF_NOBODY[method, path]:
            continue  # the same words as for an object that does not exist
        assert (role, method) == ("lead", "get"), (role, method, path, mine.status_code)
        assert LEAD_READS.match(path), (path, mine.status_code)
        read.add(re.sub("/users/alice/(jobs|datasets|models|apps)/.*", r"/\1", path))
    assert state() == before
    assert {"/api/v1/jobs", "/api/v1/datasets", "/api/v1/apps"} <= read if role == "lead" else not read


@pytest.mark.parametrize("role", ["lead", later("viewer"), later("elsewhere")])
def test_a_role_in_a_tenant_gives_nothing_beside_it(world, role):
    """The platform's own calls, those of operators, and those about nobody: as for any other user."""
    for method, path, body in calls():
        if "/users/" in path or path.startswith("/api/v1/tenants") or (method, path) in OPEN:
            continue
        theirs, members_ = (answer(world[username], method, path, body or {}) for username in (role, "member"))
        assert theirs.status_code == members_.status_code, (method, path)


@pytest.mark.long
def test_its_administrator_opens_the_pages_of_the_tenants_objects_only(world, alice):
    lead, stranger = world["lead"].pages, world["elsewhere"].pages
    for kind, addresses in shared_pages().items():
        of_tenant = any(field.name == "tenant" for field in OBJECTS[kind][0]._meta.fields)
        owner = visitor(alice)
        for address in addresses:
            own = owner.get(address.replace("/u/alice", ""), HTTP_X_SENDFILE_TYPE="X-Accel-Redirect").status_code
            seen = lead.get(address, HTTP_X_SENDFILE_TYPE="X-Accel-Redirect").status_code
            assert seen == (own if of_tenant else 404), (address, own, seen)
            assert stranger.get(address).status_code == 404, address
            assert lead.post(address, {"state": "error"}).status_code in (403, 404, 405), address


@pytest.mark.parametrize("role", ["lead", later("elsewhere")])  # who has most; test_tokens asks as a member
@pytest.mark.parametrize("part", TENTH)
def test_no_page_of_operators_opens_and_no_post_changes_what_is_alices(world, role, part):
    before = state()
    for address in list(pages())[part]:
        if address.startswith("/admin/"):
            assert not let_in(world[role].pages, address) or address.endswith(("login/", "logout/")), address
        elif not address.startswith(("/logout", "/account", "/set_language", "/tenants/in/")):
            world[role].pages.post(address, {"user": "alice", "name": "fit", "tenant": "default"})
    after = state()
    assert [row for row in after[1] if row[0] == "alice"] == [row for row in before[1] if row[0] == "alice"]
    assert Job.objects.get(user__username="alice", name="fit").state == "running"


def test_an_administrator_who_is_one_no_more_reads_and_ends_nothing(world, alice):
    lead, path = world["lead"], "users/alice/jobs/fit"
    assert lead.call("get", path).status_code == 200
    members.put(tenant="default", user="lead", role="member", by="test")
    assert lead.refused("get", path) == "job: no such job"
    assert "administrators" in lead.refused("get", "tenants/default/work")
    assert lead.pages.get("/u/alice/jobs/fit").status_code == 404
    assert row_of("job", alice).state == "running"
