"""A job's log over REST: by offset, followed to its end, never through a link."""

from __future__ import annotations

import asyncio
import shutil
import threading

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from accounts import lifecycle as accounts
from jobs import lifecycle, logs
from kernel import storage
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/users/alice/jobs/fit/log"
SPEAKS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)"


def log_file():
    return storage.job_dir("alice", "fit") / "log" / "job.log"


def bearer(user) -> dict[str, str]:
    return {"authorization": f"Bearer {accounts.token_of(user)}"}


def test_reading_by_offset_returns_the_next_offset(as_alice, submit, until):
    until(submit("print('one')\nprint('two')"), "finished")
    first = as_alice.call("get", "users/alice/jobs/fit/log?offset=4")
    assert (first.content, first["X-Next-Offset"]) == (b"two\n", "8")
    assert as_alice.call("get", "users/alice/jobs/fit/log?offset=99").content == b""


def test_a_followed_log_is_streamed_and_ends_with_the_job(submit, until, alice):
    job = until(submit(SPEAKS), "running")
    seen: list[bytes] = []
    headers = bearer(alice)

    async def read():
        answer = await AsyncClient().get(URL + "?follow=1&offset=2", headers=headers)
        assert answer["Content-Type"] == "text/plain; charset=utf-8"
        async for piece in answer.streaming_content:
            seen.append(piece)
            if b"gun" in b"".join(seen):
                cancelled.set()

    cancelled = threading.Event()
    reader = threading.Thread(target=asyncio.run, args=(read(),))
    reader.start()
    assert cancelled.wait(LIMIT_S)
    lifecycle.cancel(user=alice, name="fit", by="alice")
    until(job, "error")
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    assert b"".join(seen).startswith(b"gun\n")


def test_following_an_ended_job_returns_the_whole_log(submit, until, alice):
    until(submit("print('all of it')"), "finished")
    headers = bearer(alice)

    async def read() -> bytes:
        answer = await AsyncClient().get(URL + "?follow=1", headers=headers)
        return b"".join([piece async for piece in answer.streaming_content])

    assert async_to_sync(read)() == b"all of it\n"


def test_one_user_cannot_follow_more_logs_than_the_limit(submit, until, alice, settings):
    until(submit("print('all of it')"), "finished")
    settings.FOLLOWED_LOGS_PER_USER = 1
    headers = bearer(alice)

    async def read() -> list:
        answers = [await AsyncClient().get(URL + "?follow=1", headers=headers) for _ in range(2)]
        assert [piece async for piece in answers[0].streaming_content] == [b"all of it\n"]
        return [*answers, await AsyncClient().get(URL + "?follow=1", headers=headers)]

    first, second, third = async_to_sync(read)()
    assert [first.status_code, second.status_code, third.status_code] == [200, 403, 200]
    msg = "follow: too many at the same time: a user may have 1 (MLP_FOLLOWED_LOGS_PER_USER)"
    assert second.json() == {"msg": msg}


@pytest.mark.parametrize("query", few(["follow=1", "follow=%31", "follow=01", "follow=0&follow=1"], 1))
def test_on_a_threaded_server_a_followed_log_is_handed_over(as_alice, submit, until, query):
    job = until(submit(SPEAKS), "running")
    answer = as_alice.call("get", f"users/alice/jobs/fit/log?{query}")
    assert (answer.status_code, answer.streaming, answer["X-Accel-Redirect"]) == (200, False, logs.ELSEWHERE)
    lifecycle.cancel(user=job.user, name="fit", by="alice")
    until(job, "error")


@pytest.mark.parametrize("query", few(["follow=2", "follow=yes", "offset=-1", "more=1"], 2))
def test_an_invalid_parameter_is_named(as_alice, submit, query):
    submit()
    assert as_alice.refused("get", f"users/alice/jobs/fit/log?{query}").startswith(query.partition("=")[0])


def test_a_symlink_instead_of_the_log_is_not_followed(as_alice, submit, until, tmp_path):
    until(submit("print('mine')"), "finished")
    (tmp_path / "secret").write_text("of the platform")
    log_file().unlink()
    log_file().symlink_to(tmp_path / "secret")
    assert as_alice.call("get", "users/alice/jobs/fit/log").content == b""
    log_file().unlink()
    shutil.rmtree(log_file().parent)
    (tmp_path / "job.log").write_text("of the platform")
    log_file().parent.symlink_to(tmp_path)
    assert as_alice.call("get", "users/alice/jobs/fit/log").content == b""


def test_the_page_downloads_the_whole_log(client, alice, bob, submit, until):
    until(submit("print('all of it')"), "finished")
    client.force_login(alice)
    answer = client.get("/jobs/fit/log/download")
    assert b"".join(answer.streaming_content) == b"all of it\n"
    assert 'filename="fit.log"' in answer["Content-Disposition"]
    client.force_login(bob)
    assert client.get("/jobs/fit/log/download").status_code == 404


def test_the_tail_starts_at_a_line_and_returns_its_offset(submit, until):
    job = until(submit("for n in range(100): print('line', n)"), "finished")
    text, start, after, cut = logs.tail(job, 50)
    whole = log_file().read_bytes()
    assert (text.encode(), after, cut) == (whole[start:], len(whole), True)
    assert text.startswith("line")


@pytest.mark.parametrize("half", [1, 2, 3])
def test_a_partial_character_at_the_end_is_read_when_it_is_complete(half):
    whole = "accuracy 97 % 🚀".encode()
    written = whole[: len(whole) - 4 + half]
    text, start, after, cut = logs.ending(lambda at, most: written[at : at + most], len(written), 1000)
    assert (text, start, after, cut) == ("accuracy 97 % ", 0, len(whole) - 4, False)
    text, _, after, _ = logs.ending(lambda at, most: whole[after:][at : at + most], 4, 1000)
    assert (text, after) == ("🚀", 4)


def test_binary_output_does_not_stop_the_tail():
    written = b"good\n\xff\xfe bad\n"
    text, _, after, _ = logs.ending(lambda at, most: written[at : at + most], len(written), 1000)
    assert (text, after) == ("good\n\ufffd\ufffd bad\n", len(written))


def test_terminal_control_codes_are_applied():
    assert logs.readable("\x1b[31mred\x1b[0m\r\n10 %\r20 %\rdone\nend") == "red\ndone\nend"
