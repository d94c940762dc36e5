"""Creates .venv from requirements.txt, or with the argument `dev` from requirements-dev.txt, with nothing but Python's
standard library. Called by the Makefile when ready.py, run by .venv's own Python, says that .venv is not ready.

Safe to run twice at the same time (the second waits for the first) and safe to kill: the next run completes or
recreates an unfinished .venv. The test suites of some large packages are removed after the installation. Where Debian's
python3-venv is not installed, pip is fetched as a wheel from the package index. An old Python can read this file far
enough to report that it is too old.
"""

import base64
import configparser
import fcntl
import glob
import hashlib
import html
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from ready import BASE, DEV, RUN, VENV, asked

OLDEST = (3, 11)
VENV_PYTHON = os.path.join(VENV, "bin", "python")
PIP_WHEEL = re.compile(r"^pip-(\d+(?:\.\d+)*)-py3-none-any\.whl$")
LINK = re.compile(r"<a\s([^>]*)>", re.IGNORECASE)
WITH_TESTS = ("networkx", "numpy", "pandas", "scipy", "sklearn", "supervisor", "sympy")  # 155 MiB of tests
ATTRIBUTE = re.compile(r"([a-z-]+)\s*=\s*\"([^\"]*)\"", re.IGNORECASE)


def main():
    if sys.version_info < OLDEST:
        version = ".".join(map(str, sys.version_info[:3]))
        hint = "choose another one with: make PYTHON=python3.11 up"
        return fail(f"Python 3.11 or newer is required, and {sys.executable} is {version}; {hint}")
    packages = asked()
    lock = os.open(BASE, os.O_RDONLY)  # the folder itself: no file is left over, and the lock ends with its holders
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another make is preparing .venv; waiting for it", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    if packages.stamped() == packages.wanted() and works("import " + packages.package):
        return 0
    return build(packages, lock)


def build(packages, lock):
    print("preparing .venv (the first time this takes some minutes)", flush=True)
    for stale in (RUN, DEV):
        if stale.stamped() != stale.wanted() and os.path.exists(stale.stamp):
            os.unlink(stale.stamp)
    if not works("import pip") and not make_venv(lock):
        return 1
    requirements = packages.files[0]
    install = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    # The pinned pip comes first: it installs all others in two thirds of the processor time of Debian 12's own.
    if run([*install, *pinned_pip()], lock) != 0 or run([*install, "-r", requirements], lock) != 0:
        return fail(f"the packages of {os.path.basename(requirements)} could not be installed (see pip's output above)")
    remove_tests()
    write_stamp(RUN)  # the development packages include those for running
    if packages is DEV:
        write_stamp(DEV)
    print("preparing .venv: done", flush=True)
    return 0


def pinned_pip():
    """Return the line of requirements.txt that pins pip."""
    with open(RUN.files[0]) as file:
        return [line.strip() for line in file if line.startswith("pip==")] or ["pip"]


def remove_tests():
    """Remove the test suites that these packages install with themselves; the platform imports none of them."""
    for package in WITH_TESTS:
        for folder in glob.glob(os.path.join(VENV, "lib", "python3.*", "site-packages", package)):
            for path, names, _files in os.walk(folder):
                if "tests" in names:
                    names.remove("tests")
                    shutil.rmtree(os.path.join(path, "tests"), ignore_errors=True)


def write_stamp(packages):
    draft = packages.stamp + ".part"
    with open(draft, "w") as file:
        file.write(packages.wanted())
    os.replace(draft, packages.stamp)


def run(command, lock):
    """Run a command that writes into .venv. It holds the lock too, so that the lock outlives us if we are killed."""
    return subprocess.call(command, pass_fds=(lock,))


def works(statement):
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        same = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; "
        return subprocess.call([VENV_PYTHON, "-c", same + statement], **quiet) == 0
    except OSError:
        return False


def make_venv(lock):
    command = [sys.executable, "-m", "venv", "--clear"]
    try:
        from ensurepip import bootstrap  # noqa: F401 (only whether it is there)
    except ImportError:
        command.append("--without-pip")
    if run([*command, VENV], lock) != 0:
        return not fail(" ".join(command) + " could not create .venv (see its output above)")
    if works("import pip"):
        return True
    print("this Python comes without pip (on Debian that is the package python3-venv): fetching its wheel", flush=True)
    folder = tempfile.mkdtemp(prefix="pip-wheel-")
    try:
        wheel = fetch_pip(folder)
        # A wheel is a zip file, and Python runs the pip inside of it, which then installs itself.
        command = [VENV_PYTHON, os.path.join(wheel, "pip"), "install", "--quiet", "--no-index", wheel]
        return run(command, lock) == 0
    except (OSError, ValueError, urllib.error.URLError) as problem:
        return not fail(f"pip could not be fetched: {problem}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- pip's wheel from the package index, as pip itself would find it -----------------------------------------------
def fetch_pip(folder):
    """Download the newest pip that runs on this Python and verify it by the index's checksum."""
    index = setting("index-url", "https://pypi.org/simple").rstrip("/") + "/pip/"
    body, address = get(index, "text/html")
    best = None
    for tag in LINK.findall(body.decode("utf-8", "replace")):
        attributes = {key.lower(): html.unescape(value) for key, value in ATTRIBUTE.findall(tag)}
        link = urllib.parse.urljoin(address, attributes.get("href", ""))
        name = urllib.parse.unquote(urllib.parse.urlsplit(link).path.rsplit("/", 1)[-1])
        match = PIP_WHEEL.match(name)
        if match and "data-yanked" not in tag and runs_here(attributes.get("data-requires-python", "")):
            best = max(best or ((),), (tuple(map(int, match.group(1).split("."))), name, link))
    if best is None:
        raise ValueError(f"{index} lists no wheel of pip for this Python")
    _, name, link = best
    data, _ = get(link.split("#")[0], "*/*")
    wanted_sum = urllib.parse.urlsplit(link).fragment.partition("sha256=")[2]
    if wanted_sum and hashlib.sha256(data).hexdigest() != wanted_sum:
        raise ValueError(f"the checksum of {name} is not the one that the index lists")
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def runs_here(requires):
    """Return whether this Python satisfies `>=3.9`, as the index states it. Any other form counts as yes."""
    match = re.match(r"^>=\s*(\d+)\.(\d+)", requires)
    return not match or (int(match.group(1)), int(match.group(2))) <= sys.version_info[:2]


def get(url, accept):
    parts = urllib.parse.urlsplit(url)
    headers = {"Accept": accept, "User-Agent": "pip/bootstrap"}
    if parts.username:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    handlers = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=setting("cert", None)))]
    proxy = setting("proxy", None)
    if proxy:
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
        return answer.read(), answer.geturl()


def setting(name, default):
    """Return one of pip's settings: from PIP_NAME, else from pip's configuration files, nearest first."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    home = os.path.expanduser("~")
    config_home = os.environ.get("XDG_CONFIG_HOME", os.path.join(home, ".config"))
    files = [os.environ.get("PIP_CONFIG_FILE", ""), os.path.join(config_home, "pip", "pip.conf")]
    for path in [*files, os.path.join(home, ".pip", "pip.conf"), "/etc/pip.conf"]:
        if not value and path and os.path.isfile(path):
            parser = configparser.RawConfigParser()
            parser.read(path)
            for section in ("install", "global"):
                value = value or parser.get(section, name, fallback=None)
    return value or default


def fail(message):
    print("make: " + message, file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
