"""What an application's owner allows its callers: origins (CORS), the largest body, the longest time."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from apps import callers, keys
from apps.models import Application
from kernel import storage
from kernel.errors import Refused
from kernel.tests.nats_tools import until
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

from .conftest import NAMES
from .test_gateway import echo
from .test_keys import ask, make
from .test_request_limits import none_counted

__all__ = ["ask", "echo", "make", "none_counted"]

pytestmark = pytest.mark.django_db(transaction=True)

SHOP = "https://shop.example"
PREFLIGHT = {"Origin": SHOP, "Access-Control-Request-Method": "POST"}


def allow(app: Application, **values) -> None:
    callers.set_access(user=app.user, name=app.name, by="alice", **values)


@pytest.fixture
def listed(echo):
    """Alice's application, private, which pages of the shop may call."""
    allow(echo, origins=[SHOP])
    return echo


@pytest.fixture
def preflight(front):
    def send(name: str, **headers) -> requests.Response:
        return requests.options(f"{front}/alice/{name}/predict", headers=PREFLIGHT | headers)

    return send


def cors(answer: requests.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower().startswith("access-control")}


# --- origins ---------------------------------------------------------------------------------------------------------
def test_a_preflight_is_answered_without_a_key_and_without_the_application(listed, preflight):
    Application.objects.filter(pk=listed.pk).update(address="unix:/nowhere/at-all")
    answer = preflight(listed.name, **{"Access-Control-Request-Headers": "authorization, x-stainless-os"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-os"
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "Origin" in answer.headers["Vary"].split(", ")
    assert "Access-Control-Allow-Credentials" not in answer.headers
    named = preflight(listed.name).headers["Access-Control-Allow-Headers"]
    assert {"Authorization", "X-Api-Key", "Content-Type"} <= set(named.split(", ")), (
        "* does not stand for Authorization"
    )
    Application.objects.filter(pk=listed.pk).update(state="creating")
    assert preflight(listed.name).status_code == 204


OTHERS = [
    *("https://shop.example.evil", "https://evil.shop.example", "http://shop.example", "https://shop.example:444"),
    *("https://shopxexample", "null", "https://SHOP.example", f"{SHOP}/", f"{SHOP}, https://evil.example"),
]


@pytest.mark.parametrize("origin", few(OTHERS, 5))
def test_no_other_origin_is_allowed(listed, preflight, make, ask, origin):
    refused = preflight(listed.name, Origin=origin)
    assert (refused.status_code, cors(refused), "Origin" in refused.headers["Vary"]) == (403, {}, True)
    answer = ask(make(), Origin=origin)
    assert (answer.status_code, cors(answer), answer.headers["Vary"]) == (200, {}, "Origin")


def test_without_origins_applications_are_answered_as_missing_ones(echo, preflight):
    own, missing = preflight(echo.name), preflight("nothing")
    assert (own.status_code, own.content, cors(own)) == (403, missing.content, {})
    assert set(own.json()) == {"error", "msg"}


def test_answers_may_be_read_also_those_that_say_what_is_wrong(listed, make, ask):
    key = make(rate=1)
    answers = [ask(key, Origin=SHOP), ask(key, Origin=SHOP), ask(Origin=SHOP), ask("mlp_a1_wrong", Origin=SHOP)]
    assert [answer.status_code for answer in answers] == [200, 429, 401, 401]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] == SHOP
        assert "Retry-After" in answer.headers["Access-Control-Expose-Headers"]
        assert answer.headers["Vary"].count("Origin") == 1
    Application.objects.filter(pk=listed.pk).update(address="unix:/nowhere/at-all")
    other = make("other")
    until(lambda: ask(other).status_code == 503)
    assert ask(other, Origin=SHOP).headers["Access-Control-Allow-Origin"] == SHOP


def test_what_is_listed_replaces_what_the_application_says(listed, front, make):
    """Two values of one header are none to a browser."""
    headers = {"X-Api-Key": make(), "Origin": SHOP}
    answer = requests.get(f"{front}/alice/{listed.name}/plain", headers=headers)  # which says *
    assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_requests_of_several_origins_at_the_same_time_are_told_apart(listed, make, ask):
    """Requests that arrive together are judged together; none may get the answer to another."""
    key, origins = make(), [SHOP, "https://evil.example"]
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda origin: cors(ask(key, Origin=origin)), origins * 24))
    assert [one.get("Access-Control-Allow-Origin") for one in said] == [SHOP, None] * 24


def test_all_origins_are_allowed_without_credentials(echo, preflight, make, ask):
    allow(echo, origins=["*"])
    answers = [preflight(echo.name, Origin="https://any.example"), ask(make(), Origin="null")]
    assert [answer.headers["Access-Control-Allow-Origin"] for answer in answers] == ["*", "*"]
    assert all("Access-Control-Allow-Credentials" not in answer.headers for answer in answers)


def test_a_session_opens_it_to_no_other_site(listed, alice, front):
    cookies = {"sessionid": visitor(alice).cookies["sessionid"].value}
    headers = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    assert requests.get(f"{front}/alice/{listed.name}/v2", cookies=cookies, headers=headers).status_code == 401


def test_options_that_are_no_preflight_reach_the_application(front, deploy, ready, alice):
    app = ready(deploy(next(NAMES), public=True))
    assert requests.options(f"{front}/alice/{app.name}/v2").status_code == 405


GOOD = {
    "HTTPS://Shop.Example": SHOP, "https://shop.example:443": SHOP, "http://localhost:3000": "http://localhost:3000",
    "http://[::1]:80": "http://[::1]", "*": "*", "https://shop.example/": SHOP, "http://a.b:0443": "http://a.b:443",
}  # fmt: skip
BAD = [
    *("null", "shop.example", "https://shop.example/x", "https://*.example", "ftp://shop.example", "https://", ""),
    *("https://a:b@shop.example", "https://shop.example:0", "https://shop.example:65536", "https://sh\u00f6p.example"),
    *("https://shop.example?x", "https://shop.example\r\nX-Evil: 1", "https://shop.example ", "file://", "x" * 400),
]


def test_origins_are_stored_as_browsers_send_them(echo, as_alice):
    path = f"users/alice/apps/{echo.name}"
    for given, stored in GOOD.items():
        assert as_alice.call("put", f"{path}/access", {"origins": [given]}).json()["origins"] == [stored]
    twice = as_alice.call("put", f"{path}/access", {"origins": [SHOP, f"{SHOP}:443"]})
    assert twice.json()["origins"] == as_alice.call("get", path).json()["origins"] == [SHOP]


@pytest.mark.parametrize("origin", few(BAD, 5))
def test_what_is_no_origin_is_refused(echo, as_alice, origin):
    refused = as_alice.refused("put", f"users/alice/apps/{echo.name}/access", {"origins": [origin]})
    assert refused.startswith("origins")
    assert as_alice.call("get", f"users/alice/apps/{echo.name}").json()["origins"] == []


def test_all_origins_stand_alone_and_there_is_a_most(echo):
    with pytest.raises(Refused, match="already allows all origins"):
        allow(echo, origins=["*", SHOP])
    with pytest.raises(Refused, match="at most 20"):
        allow(echo, origins=[f"https://a{number}.example" for number in range(21)])


# --- body and time ---------------------------------------------------------------------------------------------------
SLOW = """
import time

class Predictor:
    def predict(self, inputs):
        end = time.monotonic() + inputs[0]["data"][0]
        while time.monotonic() < end:
            time.sleep(0.01)
        return inputs
"""


def test_a_body_that_is_larger_is_refused_before_it_is_counted(front, deploy, ready, make):
    app = ready(deploy(next(NAMES)))
    allow(app, body_mib=1, origins=[SHOP])
    key = make(app=app, rate=5)
    address, headers = f"{front}/alice/{app.name}/predict", {"X-Api-Key": key, "Origin": SHOP}
    padded = json.dumps({"x": [1]}).encode().ljust((1 << 20) + 1)

    def pieces():
        yield padded[:1000]
        yield padded[1000:]

    def sent_with(length: int) -> requests.Response:
        wanted = requests.Request("POST", address, headers={**headers, "Content-Length": str(length)})
        with requests.Session() as session:
            return session.send(wanted.prepare(), timeout=LIMIT_S)

    packed = {**headers, "Content-Encoding": "gzip"}
    refusals = [
        sent_with((64 << 20) + 1),  # which the gateway refuses by itself
        requests.post(address, padded, headers=headers),
        requests.post(address, pieces(), headers=headers),  # its length is known to nobody beforehand
        requests.post(address, gzip.compress(padded), headers=packed),
        requests.post(address, padded, headers={**headers, "X-App-Body": "99999999", "X-App-Length": "1"}),
    ]
    for answer in refusals:
        assert answer.status_code == 413
        assert answer.json()["error"].startswith("body: too large, at most 1 MiB")
        assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    assert requests.post(address, padded[:-1], headers=headers).json() == {"y": [2]}
    keys.collect()
    assert keys.keys_of(app).get().requests == 3, "those whose length is known did not reach the application"


def test_an_answer_that_takes_longer_is_given_up(front, deploy, ready, make):
    app = deploy(next(NAMES))
    (storage.model_dir("alice", "adder") / "predictor.py").write_text(SLOW)
    allow(ready(app), answer_s=1, origins=[SHOP])
    headers = {"X-Api-Key": make(app=app), "Origin": SHOP}

    def predict(seconds: float) -> requests.Response:
        return requests.post(f"{front}/alice/{app.name}/predict", json={"input": [seconds]}, headers=headers)

    late = predict(600)
    assert late.status_code == 504
    assert late.json()["error"] == "the model did not answer within 1 s, the limit of the application"
    assert late.headers["Access-Control-Allow-Origin"] == SHOP
    assert predict(0).status_code == 200, "the late one holds nothing up"


def test_the_gateway_says_how_long_and_how_much(echo, make, ask, settings):
    key = make()
    seen = ask(key, X_App_Time="999", X_App_Body="999").json()["headers"]
    assert not {"x-app-time", "x-app-body"} & set(seen), "callers do not choose"
    allow(echo, answer_s=7, body_mib=2)
    until(lambda: ask(key).json()["headers"].get("x-app-time") == "7")
    assert ask(key, X_App_Time="999", X_App_Body="999").json()["headers"]["x-app-body"] == str(2 << 20)


@pytest.mark.parametrize("body", few([{"body_mib": 0}, {"body_mib": 65}, {"answer_s": 0}, {"answer_s": 301},
                                      {"body_mib": 1.5}, {"answer_s": "5"}], 3))  # fmt: skip
def test_they_are_bounded_by_the_platforms_own(echo, as_alice, settings, body):
    settings.APP_ANSWER_S = 300
    refused = as_alice.refused("put", f"users/alice/apps/{echo.name}/access", body)
    assert refused.startswith(f"{next(iter(body))}:")


def test_they_are_set_on_the_page(echo, alice):
    browser, address = visitor(alice), f"/apps/{echo.name}/access"
    form = {"origins": f"{SHOP}\n\nhttp://localhost:3000", "body_mib": "5", "answer_s": ""}
    assert browser.post(f"{address}/change", form).status_code == 302
    echo.refresh_from_db()
    assert (echo.origins, echo.body_mib, echo.answer_s) == ([SHOP, "http://localhost:3000"], 5, None)
    assert SHOP in browser.get(address).content.decode()
    wrong = browser.post(f"{address}/change", {**form, "origins": "nothing", "body_mib": "6"})
    assert (wrong.status_code, "nothing is no origin" in visible_text(wrong)) == (403, True)
    echo.refresh_from_db()
    assert echo.body_mib == 5
