"""Looks for secrets of the platform and of another user in everything that a run can open."""

import ctypes
import os
import resource
import socket
import stat
import sys

from attempts import attempt, check, markers, report

LIBC = ctypes.CDLL(None, use_errno=True)
WANTED = markers()
SKIPPED = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc", "/sys", sys.prefix, sys.base_prefix)
MAX = 4 << 20  # bytes read of each file
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
KEYCTL, KEY_READ = 250, 11
PIDFD_OPEN, PIDFD_GETFD = 434, 438


def knows(data):
    """Return the places of the markers that the bytes contain."""
    return [place for place, word in enumerate(WANTED) if word in data]


def content(path):
    """Return the beginning of what can be read there, without waiting."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(file, MAX)
    finally:
        os.close(file)


def tree(top):
    """Look into all files below the folder, follow links, and talk to sockets."""
    seen = {identity(path) for path in SKIPPED if os.path.exists(path)}
    for folder, folders, files in os.walk(top, followlinks=True):
        if identity(folder) in seen:
            folders[:] = []
            continue
        seen.add(identity(folder))
        for name in files:
            look(os.path.join(folder, name))


def identity(path):
    """Return what is the same for all paths of a folder."""
    info = os.stat(path)
    return info.st_dev, info.st_ino


def look(path):
    """Report a file that has a marker, a socket that answers, a device that is more than the usual ones."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISREG(kind) and knows(content(path)):
            report(f"read {path}", True, str(knows(content(path))))
        elif stat.S_ISSOCK(kind):
            attempt(f"connect to {path}", connect, path)
        elif stat.S_ISBLK(kind) or (stat.S_ISCHR(kind) and not path.startswith("/dev/")):
            attempt(f"open {path}", content, path)
    except OSError:
        return


def connect(address):
    """Return what a unix socket says first."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(2)
        link.connect(address)
        return "connected"


def processes():
    """Inspect every process but this one, in all ways that the kernel offers."""
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        if pid == os.getpid():
            continue
        for name in ("environ", "cmdline", "maps", "mem", "auxv", "stack", "syscall"):
            try:
                data = content(f"/proc/{pid}/{name}")
            except OSError:
                continue
            if knows(data) or (data and name in {"environ", "maps", "mem"}):
                report(f"read /proc/{pid}/{name}", True, repr(data[:100]))
        for link in ("cwd", "root", "exe"):
            attempt(f"follow /proc/{pid}/{link}", os.listdir if link != "exe" else content, f"/proc/{pid}/{link}/")
        attempt(f"list /proc/{pid}/fd", os.listdir, f"/proc/{pid}/fd")
        attempt(f"trace {pid}", trace, pid)
        attempt(f"take a descriptor of {pid}", descriptor, pid)
        attempt(f"signal {pid}", os.kill, pid, 0)


def trace(pid):
    """Attach to a process as a debugger does."""
    for how in (PTRACE_SEIZE, PTRACE_ATTACH):
        check(LIBC.ptrace(how, pid, None, None) == 0, "refused")


def descriptor(pid):
    """Copy an open file of a process."""
    handle = LIBC.syscall(PIDFD_OPEN, pid, 0)
    check(any(LIBC.syscall(PIDFD_GETFD, handle, number, 0) >= 0 for number in range(64)), "refused")


def text(path):
    """Return the lines of a file of the kernel."""
    with open(path) as file:
        return file.read().splitlines()


def keyrings():
    """Read the kernel's keyrings that this process has or has inherited."""
    secrets, buffer = [], ctypes.create_string_buffer(4096)
    for line in text("/proc/keys"):
        if LIBC.syscall(KEYCTL, KEY_READ, int(line.split()[0], 16), buffer, 4096) > 0:
            secrets += knows(buffer.raw)
    check(secrets, "none of interest")


def shared():
    """Look for what other users share in memory: System V segments and queues, POSIX queues."""
    check(text("/proc/sysvipc/shm")[1:] + text("/proc/sysvipc/msg")[1:] + text("/proc/sysvipc/sem")[1:], "nothing")
    attempt("POSIX queues", lambda: check(os.listdir("/dev/mqueue"), "none"))


def abstract():
    """Connect to the abstract sockets that this network has."""
    for name in {line.split()[-1] for line in text("/proc/net/unix") if "@" in line}:
        attempt(f"connect to {name}", connect, "\0" + name[1:])


FORBIDDEN = [
    "/etc/shadow", "/etc/sudoers", "/root/.ssh/id_rsa", "/root/.bash_history", "/proc/kcore", "/proc/kmsg", "/dev/mem",
    "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/fuse", "/var/run/docker.sock", "/run/dbus",
    "/sys/kernel/debug", "/sys/fs/cgroup/cgroup.procs", "/tmp/.X11-unix", "/proc/sysrq-trigger", "/proc/1/environ",
    "/var/lib", "/var/log", "/home",
]  # fmt: skip


def main():
    """Hunt, and report everything."""
    attempt("control: read this program", content, __file__)
    tree("/")
    processes()
    for path in FORBIDDEN:
        attempt(f"open {path}", lambda path=path: os.listdir(path) if os.path.isdir(path) else content(path))
    attempt("keyrings", keyrings)
    attempt("shared memory", shared)
    attempt("mount the host's disks", lambda: check(LIBC.mount(b"/dev/root", b"/tmp", b"ext4", 0, None) == 0))
    attempt("make a device", os.mknod, "disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    attempt("core dumps", lambda: check(resource.getrlimit(resource.RLIMIT_CORE)[1] != 0, "none"))
    abstract()


if __name__ == "__main__":
    main()
