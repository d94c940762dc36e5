"""Rules for every page: access, scripts, cost; and the index."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import is_valid_path, resolve, reverse

from accounts import lifecycle as accounts
from apps.models import Application
from conftest import PASSWORD
from datasets.models import Dataset
from jobs.models import Job, RunMetric
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.routes import page_routes
from mlp.tests.tiers import TENTH, few
from models_app.models import Model
from resources import limits, tcc

from .attack.test_tokens import snapshot
from .page_world import EVIL, PAGES, fill, markup, visible_text, visitor

pytestmark = pytest.mark.django_db

OPEN = {"second_factor/passkey", "regist_login", "regist_login.jsp", "logout", "data_client.pyz", "data_client.jar"}
OPEN |= {"set_language", "shared/link", "signin/<seg:provider>", "signin/<seg:provider>/back", "second_factor"}
# Database queries of a page at most, session and user included; how many rows there are must not matter.
QUERIES = {
    "/index": 15, "/account": 9, "/settings": 4, "/notifications": 6, "/search?q=i": 13, "/start": 8, "/connect": 6,
    "/datasets": 7, "/datasets/digits": 23, "/scripts": 3, "/scripts/edit/train.py": 3, "/jobs": 21,
    "/jobs?from=done": 24, "/jobs/fit": 8, "/models": 9, "/models/net": 10, "/apps": 11, "/apps?model=net": 12,
    "/apps/calc": 10, "/jobs/done": 10, "/usage": 10, "/tenants": 5, "/tenants/in/default": 13,
}  # fmt: skip


def addresses() -> list[str]:
    """Return every address of the pages, with values for its parameters."""
    paths = []
    for pattern in page_routes():
        route = str(pattern.pattern)
        if route not in OPEN and not route.startswith(("password", "mlp.pyz")):
            route = re.sub(r"<path:\w+>", "train.py", route.replace("<int:pk>", "1"))
            paths.append("/" + re.sub(r"<(str:|seg:)?\w+>", "digits", route))
    return paths


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


@pytest.fixture(scope="module")
def files_shown(keep_files):
    return keep_files(fill)


@pytest.fixture
def shown(files_shown):
    files_shown()


@pytest.fixture
def newcomer(make_user):
    """A user without objects; alice has those of the pages."""
    return make_user("nadia")


PUBLIC = ["/regist_login", "/regist_login?action=register", "/nothing"]
LOOKED_AT = [*PAGES, *PUBLIC, "/data_client.pyz", "/api/v1/docs", "/logout"]
POSTED = [
    "/jobs", "/datasets", "/scripts", "/account/token", "/account/password", "/account/deregister", "/logout",
    "/jobs/fit/cancel", "/set_language", "/index/seen", "/datasets/digits/delete", "/models", "/models/net",
    "/models/net/delete", "/apps", "/apps/calc", "/apps/calc/delete",
]  # fmt: skip
DRAWN, PARSED = {}, {}


@pytest.fixture
def drawn(request, files_shown):  # whose world must be made before the test's own transaction begins
    """Return address -> page, as its owner sees it; all are rendered once, for the tests that only read them."""
    if not DRAWN:
        request.getfixturevalue("shown")
        owner = request.getfixturevalue("alice_client")
        for place in LOOKED_AT:
            DRAWN[place] = (visitor() if "login" in place else owner).get(place)
        PARSED.update({place: markup(page) for place, page in DRAWN.items() if "data_client" not in place})
    return DRAWN


def problems(addresses, problem_of) -> dict:
    """Return address -> what is wrong there, for the addresses where something is."""
    assert addresses
    results = {address: problem_of(address) for address in addresses}
    return {address: problem for address, problem in results.items() if problem}


class TestAccess:
    def test_every_address_has_a_page(self):
        assert len(addresses()) > 15
        for address in addresses():
            assert resolve(address)

    @pytest.mark.parametrize("method", ["get", "post"])
    def test_anonymous_users_log_in_and_return_to_the_page(self, default_tenant, method):
        request = getattr(visitor(), method)
        for address in addresses():
            response = request(address)
            assert response.status_code == 302, address
            assert response["Location"] == f"/regist_login?next={address}"

    def test_a_deactivated_user_is_anonymous(self, alice, alice_client):
        cookie = alice_client.cookies["sessionid"].value
        accounts.deregister(username="alice", by="test")
        for address in addresses():
            alice_client.cookies["sessionid"] = cookie
            assert alice_client.get(address)["Location"].startswith("/regist_login"), address

    @pytest.mark.parametrize("part", TENTH)
    def test_no_data_of_other_users_is_shown(self, alice, bob, shown, part):
        """Texts that only alice's objects contain; bob, who has none, requests every page."""
        words, client = ["alice", "exit code 1", "for the test", "epoch 1", "one.csv"], visitor(bob)
        own = [address for address in PAGES[part] if "/named" not in address]  # named environments are the tenant's
        pages = {address: client.get(address).content.decode() for address in own}
        assert problems(pages, lambda address: [word for word in words if word in pages[address]]) == {}

    def test_the_owner_can_open_every_page(self, drawn):
        assert {address: drawn[address].status_code for address in PAGES} == dict.fromkeys(PAGES, 200)

    @pytest.mark.parametrize("part", TENTH)
    def test_pages_accept_only_their_methods(self, alice_client, shown, part):
        for address in PAGES[part]:
            assert alice_client.delete(address).status_code == 405, address
            assert alice_client.put(address).status_code == 405, address

    @pytest.mark.parametrize("address", ["/index", "/account"])
    def test_pages_with_the_token_are_not_cached(self, alice_client, address):
        assert "no-store" in alice_client.get(address)["Cache-Control"]

    def test_old_addresses_redirect(self, alice_client):
        for name in ("index", "regist_login", "datasets", "jobs", "usage"):
            assert reverse(name) == f"/{name}"

    def test_every_link_of_the_index_works(self, drawn, alice_client, shown):
        links = {attrs.get("href", "") for tag, attrs in PARSED["/index"].tags if tag == "a"}
        for link in sorted(link for link in links if link.startswith("/")):
            assert (drawn.get(link) or alice_client.get(link)).status_code == 200, link
        assert {"/datasets", "/jobs", "/usage", "/scripts", "/account", "/data_client.pyz", "/data_client.jar"} <= links


class TestIndex:
    def test_the_index_shows_the_metrics_without_scripts(self, alice_client, alice, shown):
        job = put(Job, alice, "training", "running")
        for name, last in (("accuracy", 0.875), ("loss", 0.25)):
            RunMetric.objects.create(
                job=job, user=alice, name=name, last=last, min=last, max=last, count=3, step=7, at=job.created
            )
        page = alice_client.get("/index").content.decode()
        parts = [part.partition("</noscript>")[0] for part in page.split("<noscript>")]
        assert any(all(re.search(rf">\s*{number}\s*<", part) for number in ("0.875", "0.25", "7")) for part in parts)

    def test_all_addresses_of_the_index_show_the_same(self, alice_client, shown):
        pages = []
        for name in ("/index", "/index.jsp", "/"):
            text = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", alice_client.get(name).content.decode())
            text = re.sub(r"\d+:\d+:\d+\.\d+|\d{9,}\.\d+", "now", text)
            pages.append(text.replace(f'value="{name}"', "here"))
        assert pages[0] == pages[1] == pages[2]

    def test_it_has_the_username_the_token_and_the_script(self, alice_client, alice, shown):
        response = alice_client.get("/index.jsp")
        page = markup(response)
        assert "alice" in visible_text(response)
        assert accounts.token_of(alice) in response.content.decode()
        assert any("mlp/index.js" in attrs.get("src", "") for tag, attrs in page.tags if tag == "script")
        assert "fit" in [attrs["data-job"] for _tag, attrs in page.tags if "data-live" in attrs]

    def test_the_index_shows_no_data_of_other_users(self, alice_client, bob):
        put(Job, bob, "theirs", "running")
        put(Job, bob, "hisfailed", "error")
        put(Dataset, bob, "secret", "error")
        words = visible_text(alice_client.get("/index"))
        for name in ("theirs", "hisfailed", "secret"):
            assert name not in words

    @pytest.mark.parametrize("address", ["/index", "/usage"])
    def test_the_users_limits_and_usage_are_shown(self, newcomer, address):
        client = visitor(newcomer)
        assert "Your limits" not in visible_text(client.get(address))
        limits.set_limit(tenant="default", user="*", by="test", ram=2000)
        job = put(Job, newcomer, "fit", "creating")
        tcc.try_(id=f"job:{job.pk}", applier="jm", request_type="request", ram=1500, owner="nadia")
        response = client.get(address)
        assert "Your limits" in visible_text(response)
        [bar] = response.context["own"]
        assert (bar["kind"], bar["used"], bar["whole"], bar["percent"]) == ("ram", 1500, 2000, 75)

    def test_a_new_user_is_offered_the_guided_tour(self, newcomer):
        response = visitor(newcomer).get("/index")
        links = [attrs.get("href", "") for tag, attrs in markup(response).tags if tag == "a"]
        assert any("/datasets" in link for link in links)

    def test_applications_are_on_the_index(self, newcomer, bob):
        for user, name in ((newcomer, "calc"), (bob, "theirs")):
            put(Application, user, name, "ready")
        put(Application, newcomer, "ended", "error")
        words = visible_text(visitor(newcomer).get("/index"))
        assert "calc" in words
        assert "theirs" not in words
        links = [attrs.get("href") for _tag, attrs in markup(visitor(newcomer).get("/index")).tags]
        assert "/apps/calc" in links
        assert links.count("/apps/ended") == 1  # among the failures

    def test_failures_are_shown_until_marked_as_read(self, newcomer):
        job = put(Job, newcomer, "broken", "running")
        job.fail(by="test", reason="exit code 7")
        job.save()
        assert "exit code 7" in visible_text(visitor(newcomer).get("/index"))
        assert visitor(newcomer).get("/index/seen").status_code == 405

    def test_an_invalid_cookie_is_ignored(self, alice_client, shown):
        def problem(cookie: str) -> list:
            for name in ("seen_alice", "theme", "django_language", "messages"):
                alice_client.cookies[name] = cookie
            response = alice_client.get("/index")
            return markup(response).inline if response.status_code == 200 else [response.status_code]

        assert problems(["x", "", "9" * 99, "-1", "1e9", "\xff", EVIL], problem) == {}


class TestContentSecurity:
    """The pages load only our own files, as the content security policy demands."""

    def test_no_page_has_inline_code(self, drawn):
        """Nor has it any for whatever users enter: see test_hostile_words.py."""
        assert problems([*PAGES, *PUBLIC], lambda address: PARSED[address].inline) == {}

    def test_text_of_users_is_shown_unchanged(self, newcomer):
        fill(newcomer, evil=True)
        client = visitor(newcomer)
        assert EVIL in visible_text(client.get("/jobs/broken"))
        assert "<img src=x" in visible_text(client.get("/datasets/digits"))
        assert "<img src=x" in visible_text(client.get("/scripts"))

    @pytest.mark.parametrize("address", few(["/datasets", "/jobs", "/usage", "/index", "/regist_login"], 2))
    def test_query_parameters_are_escaped(self, alice_client, shown, address):
        asked = dict.fromkeys(("q", "state", "page", "next", "from", "entry", "dataset", "new", "action"), EVIL)
        response = (visitor() if "login" in address else alice_client).get(address, asked)
        assert response.status_code == 200
        assert markup(response).inline == []

    def test_the_headers(self, drawn):
        ours, nobody = ("default-src", "script-src", "style-src", "form-action"), ("object-src", "base-uri")
        policy = dict.fromkeys(ours, "'self'") | dict.fromkeys((*nobody, "frame-ancestors"), "'none'")
        others = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}

        def wrong(address: str) -> list[str]:
            given = drawn[address].get("Content-Security-Policy", "none given")
            said = dict(part.strip().split(" ", 1) for part in given.split(";"))
            wrongly = [name for name, value in policy.items() if said.get(name) != value]
            return wrongly + [name for name, value in others.items() if drawn[address].get(name) != value]

        assert problems([*PAGES, "/regist_login", "/nothing", "/data_client.pyz", "/logout"], wrong) == {}

    def test_the_api_reference_loads_our_files_only(self):
        response = visitor().get("/api/v1/docs")
        assert response.status_code == 200
        assert "'unsafe-eval'" not in response["Content-Security-Policy"]
        assert [entry for entry in markup(response).inline if entry != "script"] == []

    def test_every_static_file_exists(self, drawn):
        exists = cache(lambda link: finders.find(link.split("/", 3)[3]) is not None)  # after /static/version/

        def missing(address: str) -> list[str]:
            wanted = [attrs.get(name) or "" for _tag, attrs in PARSED[address].tags for name in ("src", "href")]
            static = {link.partition("#")[0] for link in wanted if link.startswith("/static/")}
            return [link for link in static if not exists(link)] if static else ["it names none"]

        assert problems([*PAGES, "/regist_login", "/api/v1/docs"], missing) == {}


class TestForms:
    def test_forms_without_csrf_token_are_refused(self, alice, shown):
        client = visitor(alice, enforce_csrf_checks=True)

        def problem(address: str) -> list:
            response = client.post(address, {"name": "new", "size": "1", "entry": "train.py", "confirm": "alice"})
            page = markup(response)
            styled = any(tag == "link" and "stylesheet" in attrs.get("rel", "") for tag, attrs in page.tags)
            refused = response.status_code == 403 and "Request refused" in visible_text(response)
            return page.inline + ["not refused"] * (not refused) + ["not styled"] * (not styled)

        before = snapshot()
        assert problems(POSTED, problem) == {}
        assert snapshot() == before
        assert client.get("/index").status_code == 200  # still there, still logged in

    def test_login_without_csrf_token_is_refused(self, alice):
        client = visitor(enforce_csrf_checks=True)
        response = client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
        assert response.status_code == 403
        assert "Request refused" in visible_text(response)

    def test_forms_with_csrf_token_are_accepted(self, newcomer):
        client = visitor(newcomer, enforce_csrf_checks=True)
        token = markup(client.get("/datasets")).values["csrfmiddlewaretoken"]
        fields = {"name": "digits", "size": "1", "csrfmiddlewaretoken": token}
        assert client.post("/datasets", fields).status_code == 302

    def test_every_post_form_has_a_csrf_token_and_leads_to_a_page(self, drawn):
        def wrong(address: str) -> list[str]:
            forms = re.findall(r"<form[^>]*>.*?</form>", drawn[address].content.decode(), re.DOTALL)
            posting = [form for form in forms if re.search(r'method="post"', form, re.IGNORECASE)]
            actions = [re.search(r'action="([^"]*)"', form) for form in posting]
            lost = [action[1] for action in actions if action and not is_valid_path(action[1].partition("?")[0])]
            return lost + [form for form in posting if "csrfmiddlewaretoken" not in form] + ["no form"] * (not posting)

        assert problems(PAGES, wrong) == {}

    def test_every_field_has_a_label(self, drawn):
        def unnamed(address: str) -> list[dict]:
            tags = PARSED[address].tags
            labelled = {attrs.get("for") for tag, attrs in tags if tag == "label"}
            fields = [attrs for tag, attrs in tags if tag in {"select", "textarea"}]
            plain = {"hidden", "radio", "checkbox"}
            fields += [attrs for tag, attrs in tags if tag == "input" and attrs.get("type") not in plain]
            named = ("aria-label", "hidden")
            return [each for each in fields if each.get("id") not in labelled and not any(n in each for n in named)]

        assert problems(PAGES, unnamed) == {}

    def test_ids_are_unique(self, drawn):
        def twice(address: str) -> list[str]:
            ids = Counter(attrs["id"] for _tag, attrs in PARSED[address].tags if "id" in attrs)
            return [name for name, count in ids.items() if count > 1]

        assert problems(PAGES, twice) == {}


class TestInvalidAddresses:
    @pytest.mark.parametrize("address", few(["/nothing", "/jobs/", "/index/", "/index.php", "/jobs/a/b", "/é"], 2))
    def test_not_found_pages_are_styled(self, alice_client, address):
        response = alice_client.get(address)
        assert response.status_code == 404
        assert "Page not found" in visible_text(response)

    def test_a_null_character_is_not_a_server_error(self, alice_client):
        """It is refused before any view is called."""
        assert alice_client.get("/%00").status_code == 404

    def test_a_server_error_is_shown_without_details(self, alice_client, monkeypatch):
        monkeypatch.setattr("mlp.visitors.pages.accounts.token_of", lambda user: 1 / 0)
        response = alice_client.get("/index")
        assert response.status_code == 500
        assert "Something went wrong on our side" in visible_text(response)
        assert "ZeroDivision" not in response.content.decode()
        assert markup(response).inline == []


class TestQueries:
    def test_the_number_of_queries_is_bounded(self, alice_client, alice, shown):
        put(Dataset, alice, "spare", "ready")  # that another one could be published is asked for with the first
        few = {address: self.count(alice_client, address) for address in QUERIES}
        for number in range(12):
            name = "n" * (number + 1)
            for state in ("creating", "running", "error"):
                put(Job, alice, state[0] + name, state)
                if state != "running":
                    put(Dataset, alice, state[0] + name, state)
            put(Dataset, alice, "r" + name, "ready")
            put(Model, alice, "r" + name, "ready")
            put(Application, alice, "r" + name, "ready")
            (storage.home_dir("alice") / f"{name}.py").write_text("")
        many = {address: self.count(alice_client, address, again=False) for address in few}
        many |= {address: self.count(alice_client, address) for address in few if many[address] > few[address]}
        assert {address: (few[address], many[address]) for address in few if many[address] > few[address]} == {}
        assert {address: few[address] for address in few if few[address] > QUERIES[address]} == {}

    def count(self, client, address: str, again: bool = True) -> int:
        client.get(address) if again else None  # the first visit fills caches
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        return len(queries)


def test_every_page_is_listed_in_this_file(alice_client, shown):
    """New pages must be added to PAGES, so that the rules for every page are checked."""
    known = {resolve(address.partition("?")[0]).func for address in PAGES}
    for address in addresses():
        if resolve(address).func not in known:
            response = alice_client.get(address)
            is_page = response.status_code == 200 and "attachment" not in response.get("Content-Disposition", "")
            is_page = is_page and b"<html" in response.content  # not a piece that another page fetches
            assert not is_page, f"{address} is missing in PAGES"
