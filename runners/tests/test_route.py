"""The route of a run to the internet, where slirp4netns or pasta is installed: all of the internet, nothing of here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from runners import confine, networks

from .confined import as_user
from .helpers import alive, end_of, eventually
from .networking import OWN, PORTS, TALK, children, command_of, rss_mib

KNOWN = "MLP_TEST_ROUTES"
PROGRAMS = {kind: shutil.which(kind) for kind in networks.ROUTES}


def working() -> list[str]:
    """Return the kinds of programs that work here, and "users" where they do for ordinary users, too.

    Asked once in a test run: the processes beside the first one have the answer in their environment.
    """
    if KNOWN not in os.environ:
        kinds = [kind for kind, path in PROGRAMS.items() if path and OWN and not networks.try_route(kind, path)]
        tun = as_user("open('/dev/net/tun', 'r+b', 0).close()") if os.geteuid() == 0 else {"args": ["false"]}
        users = [] if subprocess.run(**tun, capture_output=True).returncode else ["users"]
        os.environ[KNOWN] = " ".join([*kinds, *users])
    return os.environ[KNOWN].split()


WORKING, USERS = [kind for kind in working() if kind != "users"], "users" in working()
WORLDS = [world for world in OWN if (USERS or "ordinary user" not in world) and "no control" not in world]
every = pytest.mark.parametrize(("world", "kind"), [(w, k) for w in WORLDS for k in WORKING], indirect=["world"])
by_each = pytest.mark.parametrize(("world", "kind"), [(w, k) for w in WORLDS[:1] for k in WORKING], indirect=["world"])
VICTIMS = [(world, kind, "shim") for world in WORLDS for kind in WORKING]
VICTIMS += [(world, kind, victim) for world in WORLDS[:1] for kind in WORKING for victim in ("guard", "script")]

TRIES = """
import struct
def udp(host, port, words=b'x', bound=False, wait=5):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(wait)
        if bound: link.setsockopt(socket.SOL_SOCKET, 25, b'internet0')
        link.sendto(words, (host, port))
        return link.recv(2000).hex()
def tcp(host, port, bound=False, wait=5):
    with socket.socket() as link:
        link.settimeout(wait)
        if bound: link.setsockopt(socket.SOL_SOCKET, 25, b'internet0')
        link.connect((host, port))
def strictly(host, port, via):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.setsockopt(0, 4, b'\\x89\\x0b\\x04' + socket.inet_aton(via) + socket.inet_aton(host) + b'\\0')
        link.sendto(b'x', (via, port))
"""
QUERY = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01"


@pytest.fixture
def routed(networked, kind):
    """The world, whose runs have a route by a program of this kind."""
    route = (kind, PROGRAMS[kind])
    networked.runner._confinement = replace(networked.runner.confinement, route=route)
    if hasattr(networked.runner, "options"):
        networked.runner.options["route"] = route
    return networked


WAIT = TALK + TRIES + "import time\nopen('ready', 'w').write('x')\n"


def program_of(world) -> int:
    """Return the process id of the program of the run."""
    shim = json.loads((world.runner.folder / "job-1-1" / "begun.json").read_text())["shim"]
    return next((pid for pid in children(shim) if b"internet0" in command_of(pid)), 0)


class Everywhere:
    """Servers on all addresses of this machine, which count who comes."""

    def __init__(self):
        self.tcp = socket.create_server(("", 0), backlog=64)
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("", self.port))
        self.udp.settimeout(0)
        self.tcp.settimeout(0)

    def visitors(self) -> list:
        seen: list = []
        for ask in (self.udp.recvfrom, self.tcp.accept):
            try:
                seen.append(ask(100) if ask == self.udp.recvfrom else ask())
            except BlockingIOError:
                continue
        return seen

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


@pytest.fixture
def everywhere():
    everywhere = Everywhere()
    yield everywhere
    everywhere.close()


def own_addresses() -> list[str]:
    if not shutil.which("ip"):
        pytest.skip("iproute2 lists the addresses")
    told = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    return [address["local"] for link in told for address in link["addr_info"]]


@every
def test_it_reaches_servers_outside_by_tcp_udp_and_name(routed, internet):
    host, port = internet.split(":")
    code = (
        f"page = via('http://{internet}/some/page', data=bytes(300_000))\n"
        f"print(json.dumps([page, udp('{host}', {port}), udp('198.51.100.3', 53, {QUERY!r}),"
        " os.environ.get('http_proxy'), read('/etc/resolv.conf').split()[:2],"
        f" attempt(socket.create_connection, ('127.0.0.1', {PORTS['proxy']}))[0], talk()]))"
    )
    page, echo, answer, proxy, names, by_proxy, platform = routed.answer(TALK + TRIES + code)
    assert page == "['/some/page', [], 300000]"
    assert bytes.fromhex(echo) == b"echo x"
    assert bytes.fromhex(answer)[:2] == QUERY[:2], "the machine's name server has answered"
    assert (proxy, names, by_proxy) == (None, ["nameserver", "198.51.100.3"], False)
    assert platform == "echo 127.128.0.7 x\nend\n"


@every
def test_it_reaches_nothing_of_this_machine(routed, internet, everywhere):
    """Not even by a socket that is bound to the interface, which asks no route, or by a route that the packet names."""
    host = internet.split(":")[0]
    inside = ["198.51.100.2", "198.51.100.3", "198.51.100.100"]
    targets = [
        *own_addresses(),
        *inside,
        "169.254.169.254",
        "100.100.100.200",
        "127.9.9.9",
        "0.0.0.0",
        "255.255.255.255",
    ]
    targets.append(f"{host.rpartition('.')[0]}.3")  # the broadcast of a network of this machine
    code = (
        f"tries = []\nfor host in {targets!r}:\n  for bound in (False, True):\n    for way in (udp, tcp):\n"
        f"      tries.append([host, bound, *attempt(lambda: way(host, {everywhere.port}, bound=bound, wait=0.05))])\n"
        f"for via in {targets!r}: attempt(strictly, via, {everywhere.port}, '{host}')\n"
        "print(json.dumps(tries))"
    )
    tries = routed.answer(TALK + TRIES + code, environment={"PATH": os.defpath})
    assert not [attempt for attempt in tries if attempt[2]]
    assert not everywhere.visitors()
    plain = {host: why for host, bound, _, why in tries if not bound}
    assert plain["169.254.169.254"] == plain[own_addresses()[1]] == "PermissionError", "refused at once"


@every
def test_it_cannot_change_its_network(routed):
    code = """
def route():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        body = struct.pack('=8BI', 2, 32, 0, 0, 254, 4, 0, 1, 0)
        body += struct.pack('=HH4s', 8, 1, socket.inet_aton('1.2.3.4'))
        body += struct.pack('=HHI', 8, 4, socket.if_nametoindex('internet0'))
        link.send(struct.pack('=IHHII', 16 + len(body), 24, 5 | 0x400, 1, 0) + body)
        code = struct.unpack_from('=i', link.recv(1000), 16)[0]
        if code: raise OSError(-code, os.strerror(-code))
def tap():
    import fcntl
    fcntl.ioctl(open('/dev/net/tun', 'r+b', 0), 0x400454ca, struct.pack('16sH22x', b'internet0', 2))
def raw(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
def spoof(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 17)
print(json.dumps([attempt(way) for way in (route, tap, raw, spoof)]))
"""
    tries = routed.answer(TALK + TRIES + code)
    assert not [attempt for attempt in tries if attempt[0]], tries


@every
def test_the_program_has_no_privilege_and_sees_no_socket_of_the_machine(routed):
    """It reads packets of strangers."""
    routed.runner.start(routed.spec(WAIT + "import signal; signal.pause()"))
    eventually((routed.workspace / "ready").exists)
    program = Path("/proc") / str(program_of(routed))
    status = dict(line.split(":\t", 1) for line in (program / "status").read_text().splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    powers = {"DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "SETUID": 7, "NET_ADMIN": 12, "PTRACE": 19}
    may = [name for name, bit in powers.items() if int(status["CapEff"], 16) & 1 << bit]
    assert not may
    sockets = [path for path in (program / "root").rglob("*") if path.is_socket()]
    assert not [path for path in sockets if "systemd/resolve" not in str(path)]


RESOLVED = """
set -e
cp -a /etc "$1/etc"
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/resolve
cp -L /etc/resolv.conf /run/systemd/resolve/stub-resolv.conf
ln -sf ../run/systemd/resolve/stub-resolv.conf "$1/etc/resolv.conf"
mount --bind "$1/etc" /etc
shift
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has mount namespaces")
@pytest.mark.parametrize("kind", WORKING)
def test_it_works_where_the_list_of_name_servers_is_below_run(tmp_path, kind):
    """As systemd-resolved keeps it."""
    trial = [sys.executable, "-I", "-S", str(confine.SHIM), "route", kind, PROGRAMS[kind]]
    command = ["unshare", "-m", "sh", "-c", RESOLVED, "sh", str(tmp_path), *trial]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@by_each
@pytest.mark.parametrize("policy", ["platform", "none"])
def test_other_policies_have_no_route(routed, internet, policy):
    host, port = internet.split(":")
    code = (
        "print(json.dumps([[name for _, name in socket.if_nameindex()],"
        f" attempt(udp, '{host}', {port}), attempt(tcp, '{host}', {port})]))"
    )
    interfaces, by_udp, by_tcp = routed.answer(TALK + TRIES + code, network=policy)
    assert (interfaces, by_udp[0], by_tcp[0]) == (["lo"], False, False)


@pytest.mark.parametrize(("world", "kind", "victim"), VICTIMS, indirect=["world"])
def test_nothing_is_left_of_the_program(routed, victim):
    routed.runner.start(routed.spec(WAIT + "import signal; signal.pause()"))
    eventually((routed.workspace / "ready").exists)
    program = program_of(routed)
    shim = json.loads((routed.runner.folder / "job-1-1" / "begun.json").read_text())["shim"]
    guard = next(pid for pid in children(shim) if children(pid))
    script = children(guard)[0] if not children(children(guard)[0]) else children(children(guard)[0])[0]
    os.kill({"shim": shim, "guard": guard, "script": script}[victim], signal.SIGKILL)
    eventually(lambda: not alive(program))
    assert end_of(routed.runner, "job-1-1").state in ("exited", "lost")


@by_each
def test_a_killed_program_is_started_again_with_its_filter(routed, internet, everywhere):
    host, port = internet.split(":")
    code = (
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        f"while not attempt(tcp, '{host}', {port})[0]: time.sleep(0.05)\n"
        f"tries = [attempt(tcp, host, {everywhere.port}, True, 0.1)[0] for host in {own_addresses()!r}]\n"
        f"print(json.dumps([udp('{host}', {port}), tries]))"
    )
    routed.runner.start(routed.spec(WAIT + code))
    eventually((routed.workspace / "ready").exists)
    first = program_of(routed)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: program_of(routed) not in (0, first))
    (routed.workspace / "go").touch()
    assert end_of(routed.runner, "job-1-1").succeeded, routed.log
    echo, tries = json.loads(routed.log)
    assert bytes.fromhex(echo) == b"echo x"
    assert not any(tries)
    assert not everywhere.visitors()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="only root with iproute2 can add one")
@by_each
def test_an_address_that_the_machine_gets_later_is_refused_too(routed, everywhere):
    code = (
        "while not os.path.exists('go'): time.sleep(0.005)\n"
        f"while attempt(tcp, '198.18.99.1', {everywhere.port})[1] != 'PermissionError': time.sleep(0.02)\n"
        f"print(json.dumps(attempt(tcp, '198.18.99.1', {everywhere.port}, True, 0.1)))"
    )
    routed.runner.start(routed.spec(WAIT + code))
    eventually((routed.workspace / "ready").exists)
    subprocess.run(["ip", "addr", "add", "198.18.99.1/32", "dev", "lo"], check=True)
    try:
        (routed.workspace / "go").touch()
        assert end_of(routed.runner, "job-1-1").succeeded, routed.log
    finally:
        subprocess.run(["ip", "addr", "del", "198.18.99.1/32", "dev", "lo"], check=True)
    assert json.loads(routed.log)[0] is False


@by_each
def test_where_it_cannot_be_made_the_run_says_so(routed):
    routed.runner._confinement = replace(routed.runner.confinement, route=("slirp4netns", "/bin/false"))
    status = routed.run("print('started')")
    assert not status.succeeded
    assert "could not start: its route to the internet could not be made" in str(status.reason)


@by_each
def test_a_flood_of_connections_costs_little_memory(routed, internet):
    host, port = internet.split(":")
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
links = []
for number in range(3000):
    link = socket.socket(); link.setblocking(False); link.connect_ex(('{host}', {port})); links.append(link)
    try: link.send(bytes(100_000))
    except OSError: pass
open('ready', 'w').write('x')
while not os.path.exists('go'): time.sleep(0.01)
for link in links: link.close()
while not attempt(tcp, '{host}', {port})[0]: time.sleep(0.05)
"""
    routed.runner.start(routed.spec(WAIT.replace("open('ready', 'w').write('x')\n", "") + code))
    eventually((routed.workspace / "ready").exists)
    assert rss_mib(program_of(routed)) < 160
    (routed.workspace / "go").touch()
    assert end_of(routed.runner, "job-1-1").succeeded, routed.log


def test_the_first_that_works_is_taken_and_the_proxy_where_none_does(settings, monkeypatch):
    networks.find_route.cache_clear()
    decided = confine.decide()
    monkeypatch.setattr(networks.shutil, "which", lambda kind, path="": None)
    settings.RUN_INTERNET = "auto"
    chosen = networks.chosen(replace(decided, network="unshare"))
    assert chosen.route == ()
    assert "slirp4netns: not installed" in chosen.why_not
    assert "HTTP proxy" in chosen.summary()
    assert "through an HTTP proxy" in str(networks.words(chosen, "open"))
    networks.find_route.cache_clear()
    settings.RUN_INTERNET = "pasta"
    with pytest.raises(ImproperlyConfigured, match="MLP_RUN_INTERNET=pasta: pasta: not installed"):
        networks.chosen(replace(decided, network="unshare"))
    networks.find_route.cache_clear()


@pytest.mark.parametrize("kind", WORKING)
def test_what_is_chosen_is_named(settings, kind):
    settings.RUN_INTERNET = kind
    chosen = networks.chosen(confine.decide())
    assert chosen.route == (kind, PROGRAMS[kind])
    assert f"internet by {kind}" in chosen.summary()
    assert "HTTP proxy" not in str(networks.words(chosen, "open"))
