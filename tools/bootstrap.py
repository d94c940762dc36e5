"""Creates .runs-venv from requirements-runs.txt, what runs have, then .venv from requirements.txt, or with the argument
`dev` from requirements-dev.txt, with nothing but Python's standard library. Called by the Makefile when ready.py, run
by .venv's own Python, says that they are not ready.

.venv sees the packages of .runs-venv behind its own, by a .pth file: what both need, such as PyTorch, is installed
once. .runs-venv sees nothing of .venv.

Safe to run twice at the same time (the second waits for the first) and safe to kill: the next run completes or
recreates what is unfinished. The test suites of some large packages are removed after the installation. Where Debian's
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

from ready import BASE, DEV, PLATFORM, RUNS, asked, python_of

OLDEST = (3, 11)
SHARED = "runs.pth"  # in .venv, with the folder of the packages of .runs-venv
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
    if packages.is_stamped() and has(RUNS, RUNS.package) and has(packages, RUNS.package, packages.package):
        return 0
    return build(packages, lock)


def build(packages, lock):
    print("preparing .runs-venv and .venv (the first time this takes some minutes)", flush=True)
    runs_ready = RUNS.is_stamped() and has(RUNS, RUNS.package)
    for stale in (PLATFORM, DEV) if runs_ready else (RUNS, PLATFORM, DEV):
        if not (runs_ready and stale.is_stamped()) and os.path.exists(stale.stamp):
            os.unlink(stale.stamp)
    if not runs_ready and not install(RUNS, lock):
        return 1
    if not install(packages, lock):
        return 1
    write_stamp(PLATFORM)  # the development packages include those of the platform
    print("preparing .runs-venv and .venv: done", flush=True)
    return 0


def install(packages, lock):
    """Put a package set into its environment, which is made where there is none; return whether that is done."""
    if not has(packages, "pip") and not make_venv(packages, lock):
        return False
    remove_unfinished(packages)
    if packages.base:
        share(packages)
    # With -I no package of a PYTHONPATH counts as installed: runs do not see it.
    pip = [
        python_of(packages.venv),
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "--no-user",
    ]
    # The pinned pip comes first: it installs all others in two thirds of the processor time of Debian 12's own.
    if run([*pip, *pinned_pip()], lock) != 0 or run([*pip, "-r", packages.requirements], lock) != 0:
        name = os.path.basename(packages.requirements)
        return not fail(f"the packages of {name} could not be installed (see pip's output above)")
    remove_tests(packages)
    write_stamp(packages)
    return True


def pinned_pip():
    """Return the line of the requirements that pins pip."""
    with open(RUNS.requirements) as file:
        return [line.strip() for line in file if line.startswith("pip==")] or ["pip"]


def site_packages(venv):
    """Return the folder of an environment's packages for this version of Python."""
    return os.path.join(venv, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def share(packages):
    """Let the environment see the packages of the one that it builds on, behind its own."""
    folder = site_packages(packages.venv)
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, SHARED), site_packages(packages.base.venv) + "\n")


def remove_unfinished(packages):
    """Remove the records of packages whose installation was killed: pip would take them for installed. It writes who
    has installed a package when all of its files are there.
    """
    for record in glob.glob(os.path.join(site_packages(packages.venv), "*.dist-info")):
        if not os.path.exists(os.path.join(record, "INSTALLER")):
            shutil.rmtree(record, ignore_errors=True)


def remove_tests(packages):
    """Remove the test suites that these packages install with themselves; neither platform nor runs import any."""
    for package in WITH_TESTS:
        for path, names, _files in os.walk(os.path.join(site_packages(packages.venv), package)):
            if "tests" in names:
                names.remove("tests")
                shutil.rmtree(os.path.join(path, "tests"), ignore_errors=True)


def write_stamp(packages):
    write(packages.stamp, packages.wanted())


def write(path, text):
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)


def run(command, lock):
    """Run a command that writes into an environment. It holds the lock too, so that the lock outlives us if we are
    killed.
    """
    return subprocess.call(command, pass_fds=(lock,))


def has(packages, *modules):
    """Return whether the environment's Python is of this version and can import these."""
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        same = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; "
        command = [python_of(packages.venv), "-I", "-c", same + "import " + ", ".join(modules)]
        return subprocess.call(command, **quiet) == 0
    except OSError:
        return False


def make_venv(packages, lock):
    """Make the environment with a pip in it; return whether that is done."""
    command = [sys.executable, "-m", "venv", "--clear"]
    try:
        from ensurepip import bootstrap  # noqa: F401 (only whether it is there)
    except ImportError:
        command.append("--without-pip")
    else:
        if packages.base:  # whose pip installs the pinned one: ensurepip would take longer
            command.append("--without-pip")
    if run([*command, packages.venv], lock) != 0:
        return not fail(" ".join(command) + f" could not create {packages.venv} (see its output above)")
    if has(packages, "pip"):
        return True
    if packages.base:
        command = [python_of(packages.base.venv), "-I", "-m", "pip", "--python", python_of(packages.venv), "install"]
        return run([*command, "--disable-pip-version-check", "--quiet", "--no-user", *pinned_pip()], lock) == 0
    print("this Python comes without pip (on Debian that is the package python3-venv): fetching its wheel", flush=True)
    folder = tempfile.mkdtemp(prefix="pip-wheel-")
    try:
        wheel = fetch_pip(folder)
        # A wheel is a zip file, and Python runs the pip inside of it, which then installs itself.
        command = [python_of(packages.venv), os.path.join(wheel, "pip"), "install", "--quiet", "--no-index", wheel]
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
