"""Installs with uv in an environment on top of another one. Used by install.py; standard library only.

uv looks at the environment itself only, not at the one below: it would install again what that has. So each package of
the one below is noted in the environment, by its metadata without its files, while uv resolves and installs: uv keeps
it where its version fits, and replaces the note where another version is needed. The notes that are left are removed.

pip's configuration, from its variables and its files, is what counts; uv gets the same.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import ssl
import subprocess
import threading
from collections import deque

NOTED = "noted"  # who has installed what a note says
VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[a-z0-9.]+)?")  # normalized
# uv knows git only, and leaves out what has a marker that compares nonsense, where pip says what is wrong.
UNKNOWN = re.compile(r"@\s*(hg|svn|bzr)\+|\bpython_(full_)?version\s*[<>=!~]+\s*['\"](?!\s*\d)", re.IGNORECASE)
# What uv ends with, and pip does not; nor does it where one of several indexes does not answer.
PIPS = (
    "URL dependencies must be expressed as direct",
    "Couldn't parse requirement",  # such as "name;", which pip takes for "name"
    "Failed to read metadata",  # of a package below, which is older than the rules for it
    "(os error 18)",  # files cannot be moved to other folders: Landlock before Linux 5.19, some overlay file systems
)
LISTS = {
    "find-links": "--find-links", "constraint": "--constraint", "trusted-host": "--allow-insecure-host",
    "only-binary": "--only-binary", "no-binary": "--no-binary",
}  # fmt: skip
SWITCHES = {"no-index": "--no-index", "pre": "--prerelease=allow", "require-hashes": "--require-hashes"}
VARIABLES = {
    "index-url": ["UV_DEFAULT_INDEX"], "cert": ["SSL_CERT_FILE"], "client-cert": ["SSL_CLIENT_CERT"],
    "proxy": ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
}  # fmt: skip
TIMES = {"timeout": ["UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT"], "retries": ["UV_HTTP_RETRIES"]}
TRUE = {"1", "true", "yes", "on", "y", "t"}
ALWAYS = {
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_NO_CONFIG": "1",  # of uv; also the pyproject.toml of a folder around, which a run may not read
    "UV_COMPILE_BYTECODE": "1",  # the environment is read-only for those that import from it
    "UV_COMPILE_BYTECODE_TIMEOUT": "0",  # the installation as a whole has a limit
    "UV_NO_WRAP": "1",
}
LOOKED_AT = 200  # lines of uv's output
JOINED_S = 5


def install(folder: str, site: str, base: list[str], requirements: str) -> int | None:
    """Run uv's installation; return its exit code, None where pip has to install."""
    uv = _uv()
    with open(requirements, encoding="utf-8") as file:
        wanted = file.read()
    if not uv or UNKNOWN.search(wanted):
        return None
    options, variables = translated(configuration(os.path.join(folder, "bin", "python")))
    if "--hash=" in wanted:  # then each needs one, as for pip
        options.append("--require-hashes")
    notes = note(site, base)
    command = [uv, "pip", "install", "--python", os.path.join(folder, "bin", "python"), *options]
    code, text = _run([*command, "--requirement", requirements], {**os.environ, **ALWAYS, **variables})
    forget(notes)
    is_pips = any(words in text for words in PIPS) or ("UV_INDEX" in variables and "Failed to fetch" in text)
    if code > 0 and is_pips:
        print("pip tries it as well", flush=True)
        return None
    return code


def _uv() -> str | None:
    """Return the path of uv, None where there is none."""
    try:
        return __import__("uv").find_uv_bin()
    except (ImportError, AttributeError, FileNotFoundError):  # an older one has it elsewhere
        return shutil.which("uv")


# --- what the environment below has ----------------------------------------------------------------------------------
def note(site: str, base: list[str]) -> list[str]:
    """Record the packages of the environment below; return the folders of the notes."""
    folders, seen = [], set()
    for distribution in importlib.metadata.distributions(path=base):
        name, version = named(distribution)
        name = re.sub(r"[-_.]+", "_", name).lower()
        if not name or name in seen or not VERSION.fullmatch(version):
            continue
        seen.add(name)
        info = f"{name}-{version}.dist-info"
        if os.path.exists(os.path.join(site, info)):
            continue
        metadata = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        files = {"METADATA": metadata.split("\n\n")[0] + "\n", "INSTALLER": NOTED}
        files["RECORD"] = "".join(f"{info}/{each},,\n" for each in [*files, "RECORD"])
        folders.append(os.path.join(site, info))
        os.mkdir(folders[-1])
        for each, text in files.items():
            with open(os.path.join(folders[-1], each), "w", encoding="utf-8") as file:
                file.write(text)
    return folders


def named(distribution: importlib.metadata.Distribution) -> tuple[str, str]:
    """Return the name and the version of an installed package, ("", "") where its metadata do not say them, or are what
    pip has set aside, `~name-1.0.dist-info`, in an update that was interrupted.
    """
    if os.path.basename(getattr(distribution, "_path", "")).startswith("~"):
        return "", ""
    try:
        return distribution.metadata["Name"] or "", str(distribution.version)
    except ValueError:  # they are not UTF-8
        return "", ""


def forget(notes: list[str]) -> None:
    """Remove the notes that uv has not replaced."""
    for folder in notes:
        try:
            with open(os.path.join(folder, "INSTALLER")) as file:
                is_note = file.read() == NOTED
        except FileNotFoundError:
            continue
        if is_note:
            shutil.rmtree(folder)


# --- pip's configuration ---------------------------------------------------------------------------------------------
def configuration(python: str) -> dict[str, str]:
    """Return what pip's files and variables say, by the name of the option."""
    listed = subprocess.run([python, "-I", "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for section in ("global", "install", ":env:"):  # the last one counts
        for line in listed.splitlines():
            key, is_set, value = line.partition("=")
            if is_set and key.startswith(f"{section}."):
                found[key.partition(".")[2].replace("default-timeout", "timeout")] = str(ast.literal_eval(value))
    return {name: value for name, value in found.items() if value}


def translated(found: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return uv's options and variables for pip's configuration."""
    options = [f"{option}={each}" for name, option in LISTS.items() for each in found.get(name, "").split()]
    options += [option for name, option in SWITCHES.items() if found.get(name, "").lower() in TRUE]
    variables = {each: found[name] for name, names in VARIABLES.items() for each in names if name in found}
    for name, names in TIMES.items():
        if name in found:
            variables.update(dict.fromkeys(names, str(int(float(found[name])))))
    if "extra-index-url" in found:
        variables["UV_INDEX"] = " ".join(found["extra-index-url"].split())
        # As pip: the newest version of all. Where there is one index, uv would not say that it refuses access.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if _has_certificates():  # as pip; uv would trust those that it brings
        variables["UV_SYSTEM_CERTS"] = "1"
    return options, variables


def _has_certificates() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and os.listdir(paths.capath)))


# --- its output -------------------------------------------------------------------------------------------------------
def _run(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run uv, print what it says as it comes; return its exit code and its last lines.

    What a package's set-up has started may keep the pipe open, so its end is not waited for.
    """
    lines = deque(maxlen=LOOKED_AT)
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )

    def pass_on() -> None:
        for line in process.stdout:
            if not line.startswith("Using Python "):  # the path of the environment
                lines.append(line)
                print(line, end="", flush=True)

    thread = threading.Thread(target=pass_on, daemon=True)
    thread.start()
    code = process.wait()
    thread.join(JOINED_S)
    return code, "".join(list(lines))
