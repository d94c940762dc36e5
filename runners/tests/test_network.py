"""The network of a run: its own, with the platform's endpoints in it, and the internet as its policy says."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace

import pytest

from mlp.tests.servers import free_port
from runners import confine, networks
from runners.base import Endpoint
from runners.shim import landlock

from .confined import KINDS
from .helpers import alive, end_of, eventually
from .networking import OWN, PORTS, TALK, Echo, descendants, listening, open_files, relays, rss_mib

MAX = 256  # connections of one run
each_of_its_own = pytest.mark.parametrize("world", OWN, indirect=True)
best = pytest.mark.parametrize("world", OWN[:1], indirect=True)


def test_this_machine_gives_runs_a_network():
    decided = confine.decide()
    assert decided.network or "network: " in " ".join(decided.why_not)
    assert "network" in decided.summary().lower()


def test_the_settings_may_choose_the_machines_network(settings):
    settings.RUN_INTERNET = "proxy"
    assert networks.chosen(confine.decide()) == confine.decide()
    settings.RUN_NETWORK_SHARED = True
    shared = networks.chosen(confine.decide())
    assert not shared.network
    assert "NETWORK SHARED" in shared.summary()
    assert "network: MLP_RUN_NETWORK=shared" in shared.why_not


@each_of_its_own
def test_it_reaches_no_port_of_the_machine_but_the_endpoints(networked, echo):
    ports = sorted(listening() | {echo.port})
    assert echo.port in listening()
    code = (
        f"reached = []\nfor port in {ports}:\n  for host in ('127.0.0.1', '::1'):\n"
        "    if attempt(socket.create_connection, (host, port), 5)[0]: reached.append(port)\n"
        "print(json.dumps([reached, talk(), [name for _, name in socket.if_nameindex()]]))"
    )
    reached, answer, interfaces = networked.answer(TALK + code)
    assert not set(reached) & set(ports) - set(PORTS.values())
    assert answer == "echo 127.128.0.7 x\nend\n", "the owner's own address, and both directions to their ends"
    assert interfaces == ["lo"]


@each_of_its_own
def test_nobody_outside_sees_a_port_that_it_binds(networked, echo):
    """Not even that of a server of the platform which is unavailable just now."""
    echo.close()
    code = (
        f"listener = socket.create_server(('0.0.0.0', {echo.port})); open('ready', 'w').write('x')\n"
        "import signal; signal.pause()"
    )
    networked.runner.start(networked.spec(TALK + code))
    eventually(lambda: (networked.workspace / "ready").exists() or networked.runner.poll("job-1-1").state != "running")
    assert networked.runner.poll("job-1-1").state == "running", networked.log
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", echo.port), 5)


@best
@pytest.mark.parametrize("policy", ["open", "platform", "none"])
def test_the_policy_decides_about_the_internet(networked, policy):
    code = (
        "reached = attempt(talk)\n"
        "print(json.dumps([reached[0], os.environ.get('http_proxy', ''), via('http://192.0.2.1/'),"
        " via('https://192.0.2.1/')]))"
    )
    reached, proxy, plain, tunnel = networked.answer(TALK + code, network=policy)
    assert reached == (policy != "none")
    assert proxy == ("" if policy == "none" else f"http://127.0.0.1:{PORTS['proxy']}")
    for answer in (plain, tunnel):
        if policy == "open":  # a network that nobody has: it was tried
            assert "502" in answer
            assert "192.0.2.1" in answer
        elif policy == "platform":
            assert "403" in answer
            assert "the network policy of this run is 'platform'" in answer
        else:
            assert "unreachable" in answer


def addresses() -> list[str]:
    """Addresses of this machine in several notations, and others that no run may reach."""
    own = socket.gethostbyname(socket.gethostname())
    v4 = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", own, "2130706433"]
    v6 = ["::1", "::", "::ffff:127.0.0.1", "fe80::1", "ff02::1", "2002:7f00:1::", "64:ff9b::7f00:1", "::127.0.0.1"]
    v6 += ["fd00:ec2::254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "::ffff:0:0"]
    return [*v4, *(f"[{address}]" for address in v6), "localhost"]


@best
def test_the_proxy_refuses_the_machine_in_every_notation(networked, echo):
    urls = [f"{scheme}://{address}:{echo.port}/" for address in addresses() for scheme in ("http", "https")]
    code = f"os.environ.update(no_proxy='', NO_PROXY='')\nprint(json.dumps([via(url) for url in {urls!r}]))"
    for url, answer in zip(urls, networked.answer(TALK + code), strict=True):
        assert "403" in answer, (url, answer)
        assert "the network policy of this run" in answer


@best
def test_under_open_it_reaches_a_server_outside(networked, internet):
    code = (
        f"page = via('http://{internet}/some/page?x=1', data=bytes(300_000), headers={{'Proxy-Connection': 'close'}})\n"
        f"tunnel = talk(b'CONNECT {internet} HTTP/1.1\\r\\n\\r\\nPOST /in HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n',"
        f" port={PORTS['proxy']})\nprint(json.dumps([page, tunnel, attempt(talk, b'', *{internet.split(':')}[:2])]))"
    )
    page, tunnel, direct = networked.answer(TALK + code)
    assert page == "['/some/page?x=1', [], 300000]"
    assert tunnel.startswith("HTTP/1.1 200")
    assert "['/in', [], 0]" in tunnel
    assert not direct[0]


@best
def test_a_proxy_that_the_job_names_is_reached_through_ours(networked, internet):
    environment = {"https_proxy": f"http://me:pw@{internet}", "PATH": os.defpath}
    code = (
        f"answer = talk(b'CONNECT far.example:443 HTTP/1.1\\r\\n\\r\\n', port={PORTS['proxy']})\n"
        "print(json.dumps([answer, os.environ['https_proxy']]))"
    )
    answer, named = networked.answer(TALK + code, environment=environment)
    assert answer.endswith("a proxy for far.example:443")
    assert named == f"http://me:pw@127.0.0.1:{PORTS['proxy']}"


@best
def test_a_flood_of_connections_hurts_nobody(networked, echo):
    """The relay takes as many as it has room for; the others wait in the run's own kernel queue."""
    code = """
import resource, select
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
links = []
for number in range(2000):
    link = socket.socket(); link.setblocking(False); link.connect_ex(('127.0.0.1', PORT)); links.append(link)
open('ready', 'w').write('x')
while not os.path.exists('go'): select.select([], [], [], 0.01)
for link in links: link.close()
print(json.dumps(talk()))
""".replace("PORT", str(PORTS["gateway"]))
    networked.runner.start(networked.spec(TALK + code))
    eventually((networked.workspace / "ready").exists)
    eventually(lambda: echo.open >= MAX)
    assert echo.open == MAX
    [process] = relays(networked)
    assert rss_mib(process) < 64
    (networked.workspace / "go").touch()
    assert end_of(networked.runner, "job-1-1").succeeded, networked.log
    assert json.loads(networked.log) == "echo 127.128.0.7 x\nend\n"


@best
def test_a_slow_reader_slows_the_writer_and_costs_no_memory(networked, echo):
    code = f"""
link = socket.create_connection(('127.0.0.1', {PORTS["gateway"]}))
link.setblocking(False)
sent = 0
while True:
    try: sent += link.send(b'y' * 1000 + b'\\n')
    except BlockingIOError:
        import select
        if not select.select([], [link], [], 1)[1]: break
open('ready', 'w').write(str(sent))
import signal; signal.pause()
"""
    networked.runner.start(networked.spec(TALK + code))
    eventually((networked.workspace / "ready").exists)
    [process] = relays(networked)
    assert rss_mib(process) < 64


ASK_AGAIN = """
import time
open('ready', 'w').write('x')
while not os.path.exists('go'): time.sleep(0.005)
while not attempt(talk)[0]: time.sleep(0.05)
print(json.dumps(talk()))
"""


@best
def test_a_killed_relay_is_started_again_and_holds_no_lock(networked, echo):
    networked.runner.start(networked.spec(TALK + ASK_AGAIN))
    eventually((networked.workspace / "ready").exists)
    [first] = eventually(lambda: relays(networked))
    eventually(lambda: not [name for name in open_files(first) if name.endswith("/lock")])
    os.kill(first, signal.SIGKILL)
    eventually(lambda: relays(networked) not in ([], [first]))
    (networked.workspace / "go").touch()
    assert end_of(networked.runner, "job-1-1").succeeded, networked.log
    assert json.loads(networked.log) == "echo 127.128.0.7 x\nend\n"


@best
@pytest.mark.parametrize("victim", ["shim", "guard", "script"])
def test_nothing_is_left_of_the_relay(networked, victim):
    networked.runner.start(networked.spec(TALK + "import signal; open('ready', 'w').write('x'); signal.pause()"))
    eventually((networked.workspace / "ready").exists)
    begun = networked.runner.folder / "job-1-1" / "begun.json"
    [process] = eventually(lambda: relays(networked))
    shim = json.loads(begun.read_text())["shim"]
    below = [pid for pid in descendants(shim) if pid != process]
    os.kill(shim if victim == "shim" else below[0] if victim == "guard" else below[-1], signal.SIGKILL)
    eventually(lambda: not alive(process))
    assert end_of(networked.runner, "job-1-1").state in ("exited", "lost")


@best
def test_a_listener_that_is_shut_resets_the_connection_until_it_opens_again(networked, echo):
    """As while the gateway is restarted: each connection is opened for itself."""
    code = """
import time
print(json.dumps([talk(), open('one', 'w').write('x')]), flush=True)
while attempt(talk)[0]: time.sleep(0.01)
open('two', 'w').write('x')
while not attempt(talk)[0]: time.sleep(0.01)
"""
    networked.runner.start(networked.spec(TALK + code))
    eventually((networked.workspace / "one").exists)
    echo.close()
    eventually((networked.workspace / "two").exists)
    again = Echo(port=echo.port)
    try:
        assert end_of(networked.runner, "job-1-1").succeeded, networked.log
    finally:
        again.close()


@pytest.mark.skipif(landlock.version() < landlock.WITH_TCP, reason="this kernel's Landlock has no rules for TCP")
@pytest.mark.parametrize(
    "world", [kind for kind in KINDS if "user" not in kind and "no control" not in kind], indirect=True
)
@pytest.mark.parametrize("policy", ["open", "platform", "none"])
def test_without_a_network_of_its_own_landlock_keeps_the_policy_for_tcp(networked, echo, policy):
    networked.runner._confinement = replace(networked.runner.confinement, network="")
    free = free_port()  # of a gateway that is being restarted
    networked.runner.endpoints += (Endpoint("app gateway", free, "127.0.0.1", free),)
    if hasattr(networked.runner, "options"):
        networked.runner.options["endpoints"] = networked.runner.endpoints
    other = Echo()
    code = (
        f"tries = [attempt(talk, b'x', '127.0.0.1', {echo.port}), attempt(talk, b'x', '127.0.0.1', {other.port}),"
        " attempt(socket.create_server, ('127.0.0.1', 0)),"
        f" attempt(socket.create_server, ('127.0.0.1', {free}))]\n"
        "print(json.dumps([worked for worked, _ in tries]))"
    )
    try:
        tries = networked.answer(TALK + code, network=policy)
    finally:
        other.close()
    may = {"open": [True, True, True, False], "platform": [True, False, False, False], "none": [False] * 4}
    assert tries == may[policy]


@best
def test_a_run_of_the_platform_itself_keeps_the_machines_network(networked, echo):
    answer = networked.answer(TALK + f"print(json.dumps(talk(port={echo.port})))", owner=None)
    assert answer == "echo 127.0.0.1 x\nend\n"
