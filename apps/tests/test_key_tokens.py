"""The tokens of a language model by the keys of its callers: counted, shown, limited by the day."""

from __future__ import annotations

import json
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import requests
from django.utils import timezone

from apps import key_tokens, keys, launching, proof, reconcile, runs, slots, token_limits
from apps.models import AppKey, AppKeyUse, Application, AppRun
from kernel.broker import broker
from kernel.tests.nats_tools import until
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import markup, visible_text, visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from models_app.models import Model

from .conftest import NAMES, bearer_of
from .language_models import SCRIPTED, chatting
from .test_language_gateway import next_event, release, streamed
from .test_language_server import CHAT, body

pytestmark = pytest.mark.django_db(transaction=True)
RUN = "app-7-1"


@pytest.fixture
def gate(tmp_path):
    return tmp_path / "gate"


@pytest.fixture
def talk(adder, tmp_path):
    """A ready language model of alice's, whose run is recorded and counts tokens."""
    folder = tmp_path / "lm"
    folder.mkdir()
    spec = {"name": "messages", "datatype": "BYTES", "shape": [-1]}
    Model.objects.filter(pk=adder.pk).update(format="transformers", signature={"inputs": [spec], "outputs": []})
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model_id=adder.pk, name=next(NAMES), port=31000, state="ready",
        reserved=False, run_name=RUN, served_as="lm",
    )  # fmt: skip
    launching.folder(app).mkdir(parents=True)
    runs.begin(app, RUN, Model.objects.get(pk=adder.pk))
    files = {"MLP_TOKENS": str(file_of(app)), "MLP_TRAFFIC": str(launching.folder(app) / slots.traffic_name(0))}
    with chatting(folder, program=SCRIPTED, MLP_APP_SECRET=proof.secret(RUN), **files) as url:
        Application.objects.filter(pk=app.pk).update(address=urlsplit(url).netloc)
        app.refresh_from_db()
        yield app


def file_of(app: Application, run_name: str = RUN):
    return launching.folder(app) / slots.tokens_name(run_name)


def ask(front: str, app: Application, key: str, words: str = "hello", **fields) -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= fields.pop("headers", {})
    return requests.post(
        f"{front}/alice/{app.name}{CHAT}", json=body(words, **fields), headers=headers, timeout=LIMIT_S
    )


def counted(name: str = "shop") -> tuple[int, int, int]:
    key_tokens.collect()
    row = AppKeyUse.objects.filter(key__name=name).first()
    return (row.requests, row.prompt_tokens, row.completion_tokens) if row else (0, 0, 0)


def written(app: Application, counts) -> None:
    file_of(app).write_text(counts if isinstance(counts, str) else json.dumps(counts))


def kept(alice) -> tuple[Application, AppKey]:
    """Return an application whose file is the test's, and a key of it."""
    app = put(Application, alice, "talk", "ready")
    launching.folder(app).mkdir(parents=True)
    AppRun.objects.create(app=app, name=RUN, model_name="lm", ordered=timezone.now(), tokens={})
    return app, keys.create(app=app, name="shop", by="alice")[0]


# --- through the gateway ---------------------------------------------------------------------------------------------
def test_the_tokens_of_each_request_count_for_its_key(front, talk, alice, as_alice):
    shop, other = (keys.create(app=talk, name=name, by="alice")[1] for name in ("shop", "other"))
    usage = ask(front, talk, shop).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (12, 5)
    assert "usage" not in ask(front, talk, shop, "hey", stream=True).text, "the caller need not ask for it"
    assert ask(front, talk, other, "ab").status_code == 200
    assert requests.post(f"{front}/alice/{talk.name}{CHAT}", json=body("x"), headers=bearer_of(alice)).ok
    until(lambda: counted()[1:] == (22, 8))
    until(lambda: counted("other")[1:] == (9, 2))
    keys.collect()
    path = f"users/alice/apps/{talk.name}/keys"
    listed = {one["name"]: one for one in as_alice.call("get", path).json()}
    assert [listed["shop"][field] for field in keys.Day._fields[1:]] == [2, 22, 8]
    today = as_alice.call("get", f"{path}/shop").json()["days"][-1]
    assert today == {"day": str(timezone.now().date()), "requests": 2, "prompt_tokens": 22, "completion_tokens": 8}
    words = visible_text(visitor(alice).get(f"/apps/{talk.name}/access"))
    assert "tokens: 22 prompt, 8 completion, 30 today" in words


@pytest.mark.long
def test_a_caller_that_leaves_has_used_what_was_made(front, talk, gate):
    _row, key = keys.create(app=talk, name="shop", by="alice")
    link, answer = streamed(front, talk, f"wait {gate} abc", {"Authorization": f"Bearer {key}"})
    next_event(answer), next_event(answer)
    release(gate, 1)
    next_event(answer)
    answer.close()
    link.close()
    until(gate.with_name("gate.cancelled").exists)
    prompt = len(f"repeat\nwait {gate} abc")
    until(lambda: counted()[1:] == (prompt, 2))


def test_nobody_chooses_the_key_that_counts(front, talk):
    victim, _text = keys.create(app=talk, name="shop", by="alice")
    key = keys.create(app=talk, name="mine", by="alice")[1]
    forged = {"headers": {"X-App-Key": keys.opaque_id(victim.pk)}}
    assert ask(front, talk, key, "ab", **forged).status_code == 200
    Application.objects.filter(pk=talk.pk).update(public=True)
    guessed = keys.derive(victim)[:-1] + "-"
    for text in ("", guessed):
        until(lambda text=text: ask(front, talk, text, "ab", **forged).status_code == 200)
    until(lambda: counted("mine")[1:] == (9, 2))
    assert counted() == (0, 0, 0)


def test_beyond_its_tokens_of_the_day_a_key_is_refused_until_the_next(front, talk, alice):
    row, key = keys.create(app=talk, name="shop", by="alice", day_tokens=17)
    other = keys.create(app=talk, name="other", by="alice", day_tokens=18)[1]
    assert [ask(front, talk, text).status_code for text in (key, other)] == [200, 200]
    until(lambda: counted()[1:] == counted("other")[1:] == (12, 5))
    answer = ask(front, talk, key)
    wait = int(answer.headers["Retry-After"])
    assert (answer.status_code, 0 < wait <= 86_400) == (429, True)
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert answer.json()["error"]["message"] == (
        f"The key has used its tokens of the day; the next day begins at 00:00 UTC, in {wait} s."
    )
    assert "密钥" in ask(front, talk, key, headers={"Accept-Language": "zh-CN"}).json()["error"]["message"]
    assert ask(front, talk, other).status_code == 200, "17 of 18: it may take more than is left"
    assert ask(front, talk, "", headers=bearer_of(alice)).status_code == 200
    keys.collect()
    assert keys.keys_of(talk).get(name="shop").requests == 1, "what was refused is not counted"
    keys.change(app=talk, name="shop", by="alice", day_tokens=100)
    assert ask(front, talk, key).status_code == 200
    keys.change(app=talk, name="shop", by="alice", day_tokens=5)
    assert ask(front, talk, key).status_code == 429
    AppKeyUse.objects.update(day=timezone.now().date() - timedelta(days=1))
    broker().client.delete(token_limits.USED.format(pk=row.pk, day=timezone.now().date()))
    assert ask(front, talk, key).status_code == 200, "yesterday's do not count"


def test_what_a_process_has_counted_last_is_not_lost_when_it_ends(front, talk, alice, tmp_path):
    """Its file is read until a minute after its end, and then removed."""
    key = keys.create(app=talk, name="shop", by="alice")[0]
    folder = tmp_path / "second"
    folder.mkdir()
    AppRun.objects.create(app=talk, name="app-7-2", model_name="lm", ordered=timezone.now(), tokens={})
    file = file_of(talk, "app-7-2")
    with chatting(folder, program=SCRIPTED, MLP_TOKENS=str(file)) as url:
        header = {"X-App-Key": keys.opaque_id(key.pk)}
        assert requests.post(url + CHAT, json=body("hello"), headers=header, timeout=LIMIT_S).ok
    ended = AppRun.objects.filter(name="app-7-2")
    ended.update(ended=timezone.now())
    assert counted() == (0, 12, 5)
    assert (ended.get().tokens is None, file.exists()) == (False, True)
    ended.update(ended=timezone.now() - timedelta(minutes=2))
    assert counted() == (0, 12, 5)
    assert (ended.get().tokens, file.exists()) == (None, False)


# --- what a process writes -------------------------------------------------------------------------------------------
def test_only_what_was_added_is_counted(alice):
    app, key = kept(alice)
    for counts, total in ([(5, 1), (5, 1)], [(5, 1), (5, 1)], [(9, 4), (9, 4)], [(2, 1), (11, 5)]):
        written(app, {keys.opaque_id(key.pk): counts})
        assert counted()[1:] == total
    assert reconcile.pending()[-1].exists()


def test_it_says_nothing_of_the_keys_of_others(alice, bob):
    app, _key = kept(alice)
    other = put(Application, bob, "other", "ready")
    theirs = keys.create(app=other, name="theirs", by="bob", day_tokens=1)[0]
    written(app, {keys.opaque_id(theirs.pk): [100, 100], "0" * 24: [1, 1]})
    key_tokens.collect()
    assert not AppKeyUse.objects.exists()
    assert token_limits.wait_s(keys.lookup(keys.derive(theirs))) == 0


ANY = "0" * 24
ODD = ["", "[", "7", "[" * 100_000, {"x": [1, 1]}, {ANY: [1]}, {ANY: 7}, {ANY: ["1", 1]}, {ANY: [1, -1]},
       {ANY: [1.5, 1]}, {ANY: [True, 1]}, f'{{"{ANY}": [NaN, 1]}}', " " * 100_000]  # fmt: skip


@pytest.mark.parametrize("record", few(ODD, 5))
def test_odd_records_are_ignored(alice, record):
    app, key = kept(alice)
    written(app, {keys.opaque_id(key.pk): [3, 2]})
    assert counted()[1:] == (3, 2)
    written(app, record)
    assert counted()[1:] == (3, 2)
    assert visitor(alice).get("/apps/talk/access").status_code == 200


def test_links_are_not_followed_and_huge_numbers_are_clipped(alice, tmp_path):
    app, key = kept(alice)
    (tmp_path / "other").write_text(json.dumps({keys.opaque_id(key.pk): [3, 2]}))
    file_of(app).symlink_to(tmp_path / "other")
    assert counted() == (0, 0, 0)
    file_of(app).unlink()
    written(app, {keys.opaque_id(key.pk): [10**400, 1]})
    assert counted()[1:] == (10**12, 1)
    for page in ("/apps/talk", "/apps/talk/access"):
        assert visitor(alice).get(page).status_code == 200


# --- the limit is set ------------------------------------------------------------------------------------------------
def test_the_limit_is_set_and_removed_by_rest(as_alice, alice):
    kept(alice)
    path = "users/alice/apps/talk/keys"
    assert as_alice.call("post", path, {"name": "ci", "day_tokens": 1000}).json()["day_tokens"] == 1000
    assert as_alice.call("put", f"{path}/ci", {"rate": 3}).json()["day_tokens"] == 1000
    assert as_alice.call("put", f"{path}/ci", {"day_tokens": None}).json()["day_tokens"] is None
    for wrong in (0, -1, 10**12 + 1, "7", 1.5):
        assert as_alice.refused("put", f"{path}/ci", {"day_tokens": wrong}).startswith("day_tokens: ")


def test_the_limit_is_set_on_the_page_of_a_language_model(alice, talk):
    browser, address = visitor(alice), f"/apps/{talk.name}/access"
    assert browser.post(address, {"name": "shop", "days": "30", "rate": "", "day_tokens": "5000"}).status_code == 200
    page = browser.get(address)
    assert "at most 5000 tokens per day" in visible_text(page).replace(",", "")
    assert markup(page).inline == []
    before = AppKey.objects.get().expires
    browser.post(f"{address}/key", {"name": "shop", "days": "kept", "rate": "9", "day_tokens": "70"})
    row = AppKey.objects.get()
    assert (row.rate, row.day_tokens, row.expires) == (9, 70, before)
    browser.post(f"{address}/key", {"name": "shop", "days": "kept", "rate": "9", "day_tokens": ""})
    assert AppKey.objects.get().day_tokens is None
    assert "whole number" in visible_text(browser.post(address, {"name": "x", "days": "", "day_tokens": "y"}))


def test_other_models_have_no_tokens_on_the_page(alice):
    kept(alice)
    page = visitor(alice).get("/apps/talk/access")
    assert "okens per day" not in visible_text(page)
    visitor(alice).post("/apps/talk/access/key", {"name": "shop", "days": "kept", "rate": ""})
    assert AppKey.objects.get().day_tokens is None


def test_a_run_of_a_language_model_has_a_file_of_its_own(talk):
    variables = launching.spec_of(talk).environment
    assert variables["MLP_TOKENS"].endswith(f"/tokens-{RUN}.json")
    Model.objects.filter(pk=talk.model_id).update(format="predictor")
    assert "MLP_TOKENS" not in launching.spec_of(Application.objects.get(pk=talk.pk)).environment
