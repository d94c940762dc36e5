"""Programs in a running job over the websocket: who may, what goes through, how they end (docs/jobs.md)."""

from __future__ import annotations

import asyncio
import json

import pytest
from asgiref.sync import sync_to_async

import runners
from accounts import lifecycle as accounts
from accounts import named_tokens
from accounts.models import Scope
from accounts.sharing import grants
from jobs import attach, consumers, lifecycle
from jobs.models import Job
from kernel.masking import HIDDEN
from kernel.models import history_of
from mlp.asgi import application
from mlp.tests.links import Link, eventually
from mlp.tests.page_world import visitor
from resources.models import Tenant
from runners.attaching import Wanted

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/users/alice/jobs/fit/attach"
WAITS = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.05)"


@pytest.fixture
def job(submit, until):
    return until(submit(WAITS, env={"API_TOKEN": "open-sesame"}, cpu=0.1, ram=256), "running")


@pytest.fixture
def alice_token(alice):
    return accounts.token_of(alice)


@pytest.fixture
def bob_token(bob):
    return accounts.token_of(bob)


def link_of(token: str, path: str = PATH) -> Link:
    headers = [(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())]
    return Link(application, path, headers=headers)


async def begun(token: str, **program) -> Link:
    link = link_of(token)
    assert (await link.connect())[0]
    await link.send_to(text_data=json.dumps(program))
    assert await link.receive_json_from() == {"started": True}
    return link


async def rest(link: Link) -> tuple[dict, int | None, int, str]:
    """Return the outputs by their kind, the exit code, and the code and reason of the close."""
    outputs, code = {1: b"", 2: b""}, None
    while (message := await link.receive_output())["type"] == "websocket.send":
        if data := message.get("bytes"):
            outputs[data[0]] += data[1:]
        else:
            code = json.loads(message["text"])["exit_code"]
    return outputs, code, message.get("code"), message.get("reason") or ""


def test_a_command_runs_in_the_job(job, alice_token):
    async def work():
        script = "echo $API_TOKEN; cat; echo bad >&2; exit 3"
        link = await begun(alice_token, command=["sh", "-c", script])
        await link.send_to(bytes_data=b"typed\n")
        await link.send_to(text_data='{"eof": true}')
        return await rest(link)

    outputs, code, closed, _reason = asyncio.run(work())
    assert outputs == {1: b"open-sesame\ntyped\n", 2: b"bad\n"}
    assert (code, closed) == (3, 1000)
    (row,) = history_of(job).filter(transition="attach")
    assert (row.by, row.source, row.target) == ("alice", "running", "running")
    assert "sh -c" in str(row.reason)


def test_a_shell_has_a_terminal(job, alice_token):
    async def work():
        link = await begun(alice_token, terminal="xterm", rows=30, columns=100)
        await link.send_to(bytes_data=b"stty size; read size; stty size; exit 4\n")
        seen = b""
        while b"30 100" not in seen:
            seen += (await link.receive_output())["bytes"][1:]
        await link.send_to(text_data='{"resize": [50, 120]}')
        await link.send_to(bytes_data=b"\n")
        return await rest(link)

    outputs, code, closed, _reason = asyncio.run(work())
    assert b"50 120" in outputs[1]
    assert (code, closed) == (4, 1000)


def test_what_a_command_leaves_in_the_background_does_not_hold_it_up(job, alice_token):
    async def work():
        link = await begun(alice_token, command=["sh", "-c", "sleep 600 & echo there; exit 2"])
        return await rest(link)

    outputs, code, closed, _reason = asyncio.run(work())
    assert (outputs[1], code, closed) == (b"there\n", 2, 1000)
    assert len(runners.get().now(job.run_name).processes) == 2


def test_secrets_of_the_command_are_not_in_the_audit_log(job):
    program = runners.get().attach(job.run_name, Wanted(("true",)))
    program.close()
    started, _run = attach.begin(job, Wanted(("echo", "--password", "hunter22", "open-sesame")), by="alice")
    started.close()
    (row,) = history_of(job).filter(transition="attach")
    assert {"hunter22", "open-sesame"}.isdisjoint(str(row.reason).split())
    assert HIDDEN in str(row.reason)


def test_only_the_owner_with_a_token_for_everything(job, alice, alice_token, bob_token):
    grants.make(row=job, audience="user", user="bob", by="alice")
    _row, narrow = named_tokens.create(user=alice, name="ci", scope=Scope.SUBMIT, by="alice")

    async def refused(token: str, path: str = PATH) -> bool:
        return not (await link_of(token, path).connect())[0]

    async def work():
        tokens_ = (narrow, bob_token, "mlp_0_nobody", "")
        return [await refused(token) for token in tokens_] + [await refused(bob_token, PATH.replace("fit", "x"))]

    assert asyncio.run(work()) == [True] * 5
    assert not history_of(job).filter(transition="attach").exists()


NOT_STARTED = [
    ('{"command": "ls", "terminal": "xterm"}', consumers.REFUSED, "command: must be a list"),
    ('{"command": []}', consumers.REFUSED, "terminal: a shell needs a terminal"),
    ('{"terminal": "xterm", "rows": 0}', consumers.REFUSED, "rows: must be an integer"),
    ('{"terminal": "xterm", "worker": 1}', consumers.REFUSED, "worker: there is none; the job has 1"),
    ('{"command": ["ls"], "shell": "x"}', consumers.REFUSED, "shell: unknown field"),
    ('{"command": ["no-such-program"]}', consumers.FAULT, "no-such-program: No such file"),
    ("[", consumers.MALFORMED, "is not understood"),
    ("[" * 40_000, consumers.MALFORMED, "is not understood"),
    ("[]", consumers.REFUSED, "program: must be an object"),
]


def test_what_cannot_be_started_is_said(job, alice_token):
    async def work(program: str):
        link = link_of(alice_token)
        await link.connect()
        await link.send_to(text_data=program)
        return await rest(link)

    for program, code, reason in NOT_STARTED:
        _outputs, _code, closed, why = asyncio.run(work(program))
        assert (closed, reason in why) == (code, True), (program, why)


def test_a_refusal_is_in_the_language_of_the_client(job, alice_token):
    async def work(languages: str):
        headers = [(b"host", b"x"), (b"authorization", f"Bearer {alice_token}".encode())]
        link = Link(application, PATH, headers=[*headers, (b"accept-language", languages.encode())])
        await link.connect()
        await link.send_to(text_data='{"terminal": "xterm", "rows": 0}')
        return (await rest(link))[3]

    for languages in ("zh", "xx, zh-CN;q=0.8, en;q=0.1"):
        assert asyncio.run(work(languages)) == "rows: 必须是 1 到 65535 之间的整数"
    for languages in ("en", "", "xx;q=x"):
        assert asyncio.run(work(languages)) == "rows: must be an integer from 1 to 65535"


def test_what_is_not_understood_ends_the_program(job, alice_token):
    async def work(message: str):
        link = await begun(alice_token, command=["sleep", "600"])
        await link.send_to(text_data=message)
        return (await rest(link))[2]

    for message in ('{"resize": [0, 1]}', '{"resize": 5}', '{"other": 1}', "x", '{"resize": [1e99, 1]}'):
        assert asyncio.run(work(message)) == consumers.MALFORMED, message
    assert_only_the_script(job)


def assert_only_the_script(job: Job) -> None:
    async def work():
        await eventually(lambda: len(runners.get().now(job.run_name).processes) == 1)

    asyncio.run(work())


def test_a_program_ends_with_its_websocket(job, alice_token):
    async def work():
        link = await begun(alice_token, command=["sleep", "600"])
        await link.disconnect()

    asyncio.run(work())
    assert_only_the_script(job)


def test_a_program_ends_with_its_token(job, alice, alice_token, monkeypatch):
    monkeypatch.setattr(consumers, "RECHECK_S", 0.01)

    async def work():
        link = await begun(alice_token, command=["sleep", "600"])
        await sync_to_async(accounts.rotate_token)(user=alice, by="alice")
        return (await rest(link))[2]

    assert asyncio.run(work()) == consumers.ENDED
    assert_only_the_script(job)


def test_a_program_ends_with_the_job(job, alice, alice_token, until):
    async def work():
        link = await begun(alice_token, command=["sleep", "600"])
        await sync_to_async(lifecycle.cancel)(user=alice, name="fit", by="alice")
        await sync_to_async(until)(job, "error")
        return await rest(link)

    _outputs, code, closed, _reason = asyncio.run(work())
    assert closed in (consumers.NOT_RUNNING, consumers.ENDED), code

    async def again():
        link = link_of(alice_token)
        await link.connect()
        await link.send_to(text_data='{"command": ["ls"]}')
        return await rest(link)

    _outputs, _code, closed, reason = asyncio.run(again())
    assert closed == consumers.NOT_RUNNING
    assert "only a running job" in reason


def test_an_administrator_can_switch_it_off(job, alice, alice_token, settings):
    Tenant.objects.update(allows_attach=False)

    async def work():
        link = link_of(alice_token)
        await link.connect()
        await link.send_to(text_data='{"command": ["ls"]}')
        return await rest(link)

    _outputs, _code, closed, reason = asyncio.run(work())
    assert (closed, reason) == (consumers.REFUSED, "attaching to jobs is not allowed in the tenant default")
    settings.JOB_ATTACH = False
    _outputs, _code, closed, reason = asyncio.run(work())
    assert (closed, "MLP_JOB_ATTACH" in reason) == (consumers.REFUSED, True)
    assert "mlp attach" not in visitor(alice).get("/jobs/fit/processes").content.decode()


def test_input_that_is_not_read_holds_nobody_up(job, alice_token):
    """The program ends while the platform waits for it to read."""

    async def work():
        link = await begun(alice_token, command=["sh", "-c", "read line; exit 6"])
        await link.send_to(bytes_data=b"x" * (1 << 20) + b"\n")
        other = await begun(alice_token, command=["echo", "there"])
        return await rest(other), await rest(link)

    (outputs, *_), (_outputs, code, closed, _reason) = asyncio.run(work())
    assert outputs[1] == b"there\n"
    assert (code, closed) == (6, 1000)
