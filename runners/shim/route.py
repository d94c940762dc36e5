"""The route of a run to the internet: slirp4netns or pasta, which forward its packets as an ordinary program.

For a run with a network of its own and the policy `open`. The shim starts the program, as its child and in the
machine's network, and a short-lived process that enters the run's network: it attaches the filter to the interface that
the program has created there (`packets.py`), and only then configures its address and routes. So a run never has an
interface without the filter. When the program ends, the kernel removes the interface, and the shim starts over. The
route ends with the shim.

The shim is notified of addresses that the machine gets later, and adds them to the filter. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys
import time

import privileges
from netlink import IPV4_ROUTES, Kernel, Prefix
from network import CLONE_NEWNS, FAILED, MADE, MS_BIND, MS_REC, MS_SLAVE, NAME_SERVER, NAMES, mount
from packets import NEVER, attach, program

CLONE_NEWUSER, CLONE_NEWNET, NS_GET_USERNS, PIDFD_GETFD = 0x10000000, 0x40000000, 0xB701, 438
PR_SET_PDEATHSIG = 1
INTERFACE, MTU = "internet0", 65520
# The network between a run and the program: one that is kept for documentation, so nobody has it.
INSIDE, LENGTH = 0xC6336400, 24  # 198.51.100.0
GATEWAY, SERVER, OWN = INSIDE + 2, INSIDE + 3, INSIDE + 100
CIDR = "198.51.100.0/24"
READY_S = 10
PAUSES_S = (0.05, 1, 5)  # before it is started again
MAX_STARTS = 3  # before the script's start fails
MAX_FILES = 2048  # of the program: connections of the run
_libc = ctypes.CDLL(None, use_errno=True)


def command(kind: str, path: str, netns: str) -> list[str]:
    """Return the program's command line: it makes the interface, and reaches nothing of the machine's loopback."""
    if kind == "slirp4netns":
        options = ["--netns-type=path", "--enable-sandbox", "--enable-seccomp", "--disable-host-loopback"]
        return [path, *options, f"--cidr={CIDR}", f"--mtu={MTU}", netns, INTERFACE]
    inside = "198.51.100."
    return [
        path, "--foreground", "--quiet", "--netns-only", *(["--runas", "0"] if os.geteuid() == 0 else []),
        "-t", "none", "-u", "none", "-T", "none", "-U", "none",  # no ports of either side at the other
        "--no-map-gw", "-4", "-a", f"{inside}100", "-n", str(LENGTH), "-g", f"{inside}2",
        "--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra", "--dns-forward", NAME_SERVER,
        "-I", INTERFACE, "--mtu", str(MTU), "--netns", netns,
    ]  # fmt: skip


class Route:
    """The shim's side: keeps the program and the filter. Its descriptors are in the caller's poller."""

    link: socket.socket | None = None

    def __init__(self, asked: list[str], poller):
        self.asked, self.poller = asked, poller  # the kind of program, and its path
        self.pids: dict[int, int] = {}  # by the descriptor of its end: the program, and the process that configures
        self.program = self.setter = self.starts = 0
        self.due: float | None = None  # when to start again, on the monotonic clock
        self.kernel: Kernel | None = None  # notified of changes in this machine's network
        self.refused: set[Prefix] = set()
        self.behind = False  # addresses were added since the filter was made

    def begin(self, netns: int, link: socket.socket) -> None:
        """Make the route; tell the guard by the link when it is there."""
        self.netns, self.link = netns, link
        self.kernel = Kernel(IPV4_ROUTES)
        self.kernel.socket.setblocking(False)
        self.poller.register(self.kernel.socket.fileno(), 1)
        self.learn()
        self.start()

    def learn(self) -> bool:
        """Read this machine's addresses; return whether there are new ones. Earlier addresses stay blocked."""
        new = Kernel().own() - self.refused
        self.refused |= new
        return bool(new)

    def start(self) -> None:
        self.due, self.starts = None, self.starts + 1
        self.program = self.fork(become_program, self.asked, self.netns)
        self.set_up()

    def set_up(self) -> None:
        self.behind = False
        self.setter = self.fork(configure, self.netns, self.program, self.refused)

    def fork(self, what, *arguments) -> int:
        """Fork a child that does this; return its process id."""
        shim, pid = os.getpid(), os.fork()
        if pid == 0:
            try:
                become_child(shim, self.netns)
                what(*arguments)
                os._exit(0)
            except BaseException as problem:
                print(f"route to the internet: {problem}", file=sys.stderr, flush=True)
            finally:
                os._exit(1)
        end = os.pidfd_open(pid)
        self.pids[end] = pid
        self.poller.register(end, 1)
        return pid

    def poll(self, fd: int) -> bool:
        """Handle an event of this descriptor; return False if it is not one of the route's."""
        if self.kernel and fd == self.kernel.socket.fileno():
            if self.kernel.changed() and self.learn():
                self.behind = True
        elif fd in self.pids:
            self.ended(fd)
        else:
            return False
        if self.behind and self.program and not self.setter:
            self.set_up()
        return True

    def ended(self, fd: int) -> None:
        self.poller.unregister(fd)
        os.close(fd)
        pid = self.pids.pop(fd)
        try:
            done = os.waitpid(pid, 0)[1] == 0
        except ChildProcessError:
            done = False
        if pid == self.program:
            self.program = 0
            self.due = time.monotonic() + PAUSES_S[min(self.starts, len(PAUSES_S)) - 1]
            if self.starts == MAX_STARTS:
                self.tell(FAILED)
            if self.setter:
                os.kill(self.setter, signal.SIGKILL)
        else:
            self.setter = 0
            if not done and self.program:
                os.kill(self.program, signal.SIGKILL)
            elif done:
                self.tell(MADE)

    def tell(self, what: bytes) -> None:
        """Notify the guard, which delays the start of the script."""
        if self.link:
            with contextlib.suppress(OSError):
                self.link.send(what)
            self.link.close()
            self.link = None

    def again(self) -> None:
        """Restart what has ended, once its pause is over."""
        if self.due is not None and time.monotonic() >= self.due and not self.setter:
            self.start()


def become_child(shim: int, netns: int) -> None:
    """Close what a child of the shim does not need, and end with the shim. Raises OSError."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # pasta refuses to start where SIGPIPE is ignored
    os.closerange(3, netns)
    os.closerange(netns + 1, 1 << 20)
    join_owner(netns)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != shim:
        os._exit(0)


def join_owner(netns: int) -> None:
    """Join the user namespace to which the network namespace belongs, where that is another one. Raises OSError."""
    owner = fcntl.ioctl(netns, NS_GET_USERNS)
    try:
        if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
            enter(owner, CLONE_NEWUSER)
    finally:
        os.close(owner)


def enter(namespace: int, kind: int) -> None:
    """Join a namespace. Raises OSError."""
    if _libc.setns(namespace, kind):
        raise OSError(ctypes.get_errno(), f"its namespace: {os.strerror(ctypes.get_errno())}")


def become_program(asked: list[str], netns: int) -> None:
    """Execute the program. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
    os.nice(5)
    privileges.no_new_privileges()
    hide_sockets()
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(null, target)
    os.set_inheritable(netns, True)
    os.execve(asked[1], command(*asked, f"/proc/self/fd/{netns}"), {})


def hide_sockets() -> None:
    """Empty /run except the folder of the list of name servers.

    The program parses untrusted packets, as root if the platform runs as root, and services that listen in /run obey
    root. Raises OSError.
    """
    folder = os.path.dirname(os.path.realpath(NAMES))
    if _libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), f"mount namespace: {os.strerror(ctypes.get_errno())}")
    kept = os.open(folder, os.O_PATH)  # only now: a folder of another mount namespace cannot be mounted here
    mount("none", "/", "", MS_REC | MS_SLAVE)
    mount("tmpfs", "/run", "tmpfs", 0)
    if folder.startswith("/run/"):
        os.makedirs(folder)
        mount(f"/proc/self/fd/{kept}", folder, "", MS_BIND)
    os.close(kept)


def configure(netns: int, pid: int, own: set[Prefix]) -> None:
    """Put the filter on the run's interface; then give it its address and routes. Raises OSError."""
    refused = {*own, *NEVER, (INSIDE, LENGTH)}
    tap = handle_of(pid)
    attach(tap, program(refused, SERVER))
    os.close(tap)
    enter(netns, CLONE_NEWNET)
    kernel, index = Kernel(), socket.if_nametoindex(INTERFACE)
    kernel.set_up(index, MTU)
    kernel.add_address(index, OWN, LENGTH)
    for prefix in refused - {(INSIDE, LENGTH), (0x7F000000, 8)}:
        kernel.prohibit(prefix)  # the filter alone would let programs wait
    kernel.add_default(index, GATEWAY)


def handle_of(pid: int) -> int:
    """Return a descriptor of the interface that the program holds open, once it does. Raises OSError."""
    process, deadline, pause = os.pidfd_open(pid), time.monotonic() + READY_S, 0.001
    while time.monotonic() < deadline:
        if (number := number_of_tap(pid)) is not None:
            descriptor = _libc.syscall(PIDFD_GETFD, process, number, 0)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), f"its interface: {os.strerror(ctypes.get_errno())}")
            return descriptor
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    raise OSError("the program has made no interface")


def number_of_tap(pid: int) -> int | None:
    """Return the number that the interface has in that process; None where it has none yet."""
    with contextlib.suppress(PermissionError, FileNotFoundError):  # it is about to become the program; it has ended
        for number in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{number}") as file:
                if f"\niff:\t{INTERFACE}\n" in f"\n{file.read()}":
                    return int(number)
    return None


# --- does it work here? -----------------------------------------------------------------------------------------------
def try_here(asked: list[str]) -> None:
    """Make a route for a network namespace that nobody uses. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    here, there = socket.socketpair()
    holder = os.fork()
    if holder == 0:
        try:
            if _libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if uid else 0)):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            if uid:
                for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                    with open(f"/proc/self/{name}", "w") as file:
                        file.write(text)
            there.send(b".")
            signal.pause()
        finally:
            os._exit(1)
    there.close()
    children: list[int] = [holder]
    try:
        if not here.recv(1):
            raise OSError("a network namespace cannot be made")
        netns = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
        trial = _Trial(asked, netns)
        children += [trial.program, trial.setter]
        if os.waitpid(trial.setter, 0)[1]:
            raise SystemExit(1)  # it has said why
    finally:
        for pid in (children[0], *children[1:2]):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class _Trial(Route):
    """A route that nothing waits for."""

    def __init__(self, asked: list[str], netns: int):
        import select

        super().__init__(asked, select.epoll())
        here, there = socket.socketpair()
        self.ends = here
        self.begin(netns, there)
