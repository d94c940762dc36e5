"""Makes an environment and installs packages in it: `python -I install.py FOLDER REQUIREMENTS`. Runs as a run.

The environment sees the packages of the interpreter that makes it, so that torch and the like are there already: an
environment in an environment does not do that by itself. uv installs; pip does where there is no uv, and what uv cannot
do. Standard library only. Exits with the installer's code.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys

CACHE = ".cache"  # of the installers, in the environment until it is installed: links lead within one mount only


def main(folder: str, requirements: str) -> int:
    shown = os.path.basename(folder)
    for name in os.listdir(folder):  # what an interrupted installation has left
        path = os.path.join(folder, name)
        if name != CACHE:
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    has_pip = importlib.util.find_spec("pip") is not None
    command = [sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), folder]
    if sys.prefix == sys.base_prefix:  # else the system's packages would be seen, which the interpreter does not see
        command.append("--system-site-packages")
    if code := subprocess.call(command):
        print(f"{shown}: the environment could not be made", flush=True)
        return code
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = os.path.join(folder, "lib", name, "site-packages")
    base = [path for path in sys.path if os.path.basename(path) in {"site-packages", "dist-packages"}]
    with open(os.path.join(site, "_platform.pth"), "w") as file:
        file.write("".join(f"{path}\n" for path in base))
    code = with_uv.install(folder, site, base, requirements)
    if code is None:
        code = with_pip(os.path.join(folder, "bin", "python"), requirements)
    if code < 0:  # by a signal: of want of memory, perhaps. The run ends by it, too, which gives the reason
        os.kill(os.getpid(), -code)
    if code == 0:
        found = map(with_uv.named, importlib.metadata.distributions(path=[site]))
        installed = sorted({f"{name}=={version}" for name, version in found if name})
        with open("packages.txt", "w") as file:
            file.write("".join(f"{pin}\n" for pin in installed))
    return code


def with_pip(python: str, requirements: str) -> int:
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-warn-script-location"]
    options.append("--no-user")  # access(2), by which pip would choose, says under Landlock that nothing is writable
    return subprocess.call([python, "-m", "pip", "install", *options, "--requirement", requirements])


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import with_uv

    sys.exit(main(*sys.argv[1:]))
