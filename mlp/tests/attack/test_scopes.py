"""Every address of the platform with a token of each scope: what the tables beside this file promise, and no more.

The tables are judged by docs/tokens.md and written by hand; nothing here asks the code what a call may do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from accounts import named_tokens
from conftest import Api
from datasets.models import Dataset
from datasets.webdav.gate import internal_key
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.attack.scope_protocols import MLFLOW, WEBDAV
from mlp.tests.attack.scope_rest import REST
from mlp.tests.attack.test_tokens import VALUES, attacked, pages, snapshot
from mlp.tests.page_world import visitor
from mlp.tests.rest_schema import rest_schema
from mlp.tests.test_mlflow_routes import calls as mlflow_calls
from mlp.tests.test_mlflow_routes import short
from mlp.tests.tiers import few, later

pytestmark = pytest.mark.django_db

SCOPES = ("full", "read", "submit", "dataset", "application")
# always each narrow scope; of "full" a table says only that it may make every call
IN_TURN = pytest.mark.parametrize("scope", [later("full"), *SCOPES[1:]])
BEYOND = ("this token is only for", "token: not valid")  # the second at endpoints that know no scopes
NOT_OF_ROUTES = {("PUT", "mlflow-artifacts/artifacts/<path:path>")}  # nginx asks first (tracking/mlflow/uploads.py)
ENDS_EARLY = "?beyond=1"  # no call of REST knows it: it is refused for that, after its token
Lines = dict[tuple[str, ...], set[str]]


def lines_of(table: str) -> Lines:
    """Return the scopes that may make each call: the words of a line are the call, then the scopes."""
    lines: Lines = {}
    for line in table.splitlines():
        words = line.partition("#")[0].split()
        call = tuple(word for word in words if word not in {*SCOPES, "-"})
        if words:
            assert call not in lines, f"{line} is there twice"
            assert len(call) < len(words), f"{line} says nothing of who may"
            lines[call] = set(words) & set(SCOPES)
    return lines


def is_refused(response) -> bool:
    """Return whether the token was refused, rather than the call; the answer to HEAD says no more than its code."""
    if response.request["REQUEST_METHOD"] == "HEAD":
        return response.status_code == 403
    return not response.streaming and any(words in response.content.decode() for words in BEYOND)


@pytest.fixture(scope="module")
def attacked_files(keep_files):
    return keep_files(attacked)


@pytest.fixture
def token(attacked_files, alice, bob):
    """Return a function that makes alice's token of a scope; hers are objects of every kind."""
    attacked_files()

    def make(scope: str, user=alice, target: str = "fit") -> str:
        target = target if scope in ("dataset", "application") else ""
        name = f"for-{scope}-{target}x"
        return named_tokens.create(user=user, name=name, scope=scope, target=target, by="test")[1]

    return make


Send = Callable[[str, tuple[str, ...], bool], object]


def wrong(lines: Lines, tokens: dict[str, str], send: Send) -> list:
    """Return the calls that a token may make against its line, or may not make although it says so."""
    wrong_calls = []
    for call, may in lines.items():
        for scope, text in tokens.items():
            response = send(text, call, scope in may)
            if is_refused(response) is (scope in may) or (scope not in may and response.status_code not in (401, 403)):
                wrong_calls.append((*call, scope, "refused" if scope in may else "allowed", response.status_code))
    return wrong_calls


def rest(text: str, call: tuple[str, ...], may: bool, real: bool = False):
    """Send a call of REST. One that the token may make ends after the check of the token, unless it is to be `real`."""
    method, template = call
    address = re.sub(r"\{(\w+)\}", lambda name: VALUES[name.group(1)], template)
    ends_early = may and not real and template != "/auth"  # which looks at the token only
    body = {} if method in ("POST", "PUT") else None
    return Api(text).call(method.lower(), address.removeprefix("/") + ENDS_EARLY * ends_early, body)


def test_every_call_of_rest_has_a_line():
    calls = {
        (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in rest_schema()["paths"].items()
        for method in methods
        if method in {"get", "post", "put", "delete", "patch"}
    }
    assert set(lines_of(REST)) == calls


@IN_TURN
def test_of_the_calls_of_rest_a_scope_has_those_of_its_lines(token, scope):
    """And a call that is refused changes nothing, nor does any that only reads."""
    text = token(scope)
    Api(text).call("get", "users/alice")  # the last use is noted before what is compared
    before = snapshot()
    assert wrong(lines_of(REST), {scope: text}, partial(rest, real=scope == "read")) == []
    assert snapshot() == before


def for_others(lines: Lines) -> Lines:
    """Return the lines that are others for another user's objects, or another dataset: all of `dataset`, and those of
    `submit` that are not reads.
    """
    wanted = {call: may - {"dataset"} - (set() if "read" in may else {"submit"}) for call, may in lines.items()}
    return {call: may for call, may in wanted.items() if may != lines[call]}


def test_to_submit_and_one_dataset_are_for_the_users_own(token, staff):
    """Also where the user is an administrator, who may do all that to everybody's."""
    lines = for_others(lines_of(REST))
    assert len(lines) > 30
    tokens = {scope: token(scope, staff) for scope in ("submit", "dataset")}
    assert wrong(lines, tokens, rest) == []
    assert wrong(lines, {"dataset": token("dataset", target="photos")}, rest) == []


@pytest.mark.parametrize("scope", few(SCOPES, 2))
def test_a_token_opens_no_page(token, scope):
    """Pages know sessions only, also those that the REST calls do not cover."""
    client = visitor()
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {token(scope)}"
    for address in ("/account", "/account/tokens", "/admin/", "/settings", "/index", "/password"):
        assert client.get(address).status_code in (302, 404) or address == "/password", address
    assert len(pages()) > 150


# --- MLflow's protocol ------------------------------------------------------------------------------------------------
def test_every_call_of_mlflow_has_a_line():
    calls = {(method, short(address)) for method, address in mlflow_calls()}
    assert set(lines_of(MLFLOW)) == calls | NOT_OF_ROUTES


@IN_TURN
@pytest.mark.parametrize("names", [("1", "delete/get/1"), later(("get-delete",))])
def test_of_mlflows_calls_a_scope_has_those_of_its_lines(token, names, scope):
    """Whatever a path or a key is called."""
    addresses = {(method, short(address)): f"/{address}" for method, address in mlflow_calls()}
    client = visitor()

    def send(text: str, call: tuple[str, ...], may: bool, name: str = ""):
        header = {"HTTP_AUTHORIZATION": f"Bearer {text}"}
        if call in NOT_OF_ROUTES:
            address = "/mlflow/api/2.0/" + call[1].replace("<path:path>", name)
            asked = {"HTTP_X_INTERNAL_KEY": internal_key(), "HTTP_X_DATA_URI": address}
            return client.get("/internal/mlflow/may", **asked, **header)
        address = re.sub("<path:.*?>", name, addresses[call])
        address = re.sub("<str:.*?>", name.partition("/")[0], address)
        return client.generic(call[0], address, b"{}", content_type="application/json", **header)

    lines, tokens = lines_of(MLFLOW), {scope: token(scope)}
    for name in names:
        some = lines if name == "1" else {call: may for call, may in lines.items() if "<" in call[1]}
        assert wrong(some, tokens, lambda *given, name=name: send(*given, name=name)) == [], name


# --- WebDAV -----------------------------------------------------------------------------------------------------------
def dav(text: str, method: str, address: str, destination: str = ""):
    """Send a call of the data service, as nginx hands it on."""
    header = {"HTTP_AUTHORIZATION": f"Bearer {text}"} if text else {}
    if destination:
        header |= {"HTTP_HOST": "testserver", "HTTP_DESTINATION": f"http://testserver{destination}"}
    path = "may" if method == "PUT" else "verb"
    asked = {"HTTP_X_INTERNAL_KEY": internal_key(), "HTTP_X_DATA_URI": address, "HTTP_DEPTH": "0"}
    return visitor().generic("GET" if method == "PUT" else method, f"/internal/data/{path}", **asked, **header)


def files() -> dict[str, str]:
    """Return what is in alice's dataset `up` and `.home`."""
    folders = storage.dataset_dir("alice", "up"), storage.home_dir("alice")
    return {str(file): file.read_text() for folder in folders for file in folder.rglob("*") if file.is_file()}


def webdav(text: str, call: tuple[str, ...], may: bool):
    """Send a call about alice's files, which are put back before it; one whose token is refused leaves them."""
    for folder in (storage.dataset_dir("alice", "up"), storage.home_dir("alice")):
        storage.remove_tree(folder)
        (folder / "folder").mkdir(parents=True)
        for name in ("path", "file", "folder/inner"):
            (folder / name).write_text(name)
    names = {"path": "path", "file": "file", "folder": "folder", "new": "new", "dataset": "up", "root": ""}
    addresses = [f"/data/alice/{each.format(**names)}" for each in call[1:]]
    before = files()
    response = dav(text, call[0], *addresses)
    assert not is_refused(response) or files() == before, call
    if may and call[0] in ("DELETE", "MOVE", "COPY"):
        assert response.status_code in (201, 204), (call, response.content)
    return response


@pytest.fixture
def uploaded(token, alice):
    """Make alice's dataset `up`, which is uploaded; return the function that makes tokens, of it where of one."""
    row = put(Dataset, alice, "up", "creating")
    Dataset.objects.filter(pk=row.pk).update(size=1 << 20, stored=100)
    return lambda scope, user=alice, target="up": token(scope, user, target)


def test_every_method_of_webdav_has_its_lines():
    allowed = set(dav("", "OPTIONS", "/data/")["Allow"].split(", ")) - {"OPTIONS"}
    for place in ("{dataset}", ".home"):
        assert {call[0] for call in lines_of(WEBDAV) if call[1] == place + "/{path}"} == allowed


@IN_TURN
def test_of_webdavs_calls_a_scope_has_those_of_its_lines(uploaded, scope):
    assert wrong(lines_of(WEBDAV), {scope: uploaded(scope)}, webdav) == []


def test_with_files_to_submit_and_one_dataset_are_for_the_users_own(uploaded, staff):
    lines = for_others(lines_of(WEBDAV))
    assert wrong(lines, {scope: uploaded(scope, staff) for scope in ("submit", "dataset")}, webdav) == []
    assert wrong(lines, {"dataset": uploaded("dataset", target="photos")}, webdav) == []


@pytest.mark.parametrize("scope", ["dataset", "submit"])
def test_a_ready_dataset_is_not_deleted_at_its_address(token, scope):
    assert is_refused(dav(token(scope), "DELETE", "/data/alice/fit"))
    assert Dataset.objects.get(name="fit").state == "ready"


@pytest.mark.parametrize("scope", ["read", "submit", "dataset", "application"])
def test_endpoints_of_services_take_no_narrow_token(token, staff, scope):
    """Those that name no scope: the shippers' and Opni's."""
    header = {"HTTP_AUTHORIZATION": f"Bearer {token(scope, staff)}"}
    for address in ("/v1/logs", "/loki/api/v1/push", "/ModelTraining/model/train"):
        response = visitor().post(address, b"{}", content_type="application/json", **header)
        assert response.status_code == 401, (address, response.status_code)
