"""Records the interpreter and the packages of a run when its first Python process starts, in a millisecond or two.

Python imports a module of this name at its start. The platform reads `log/environment-N.txt`, one `key value` a line.
Errors are ignored, so that they cannot affect the script. A sitecustomize of the image is run afterwards.
"""

import os
import sys


def _lines():
    system = os.uname()
    yield "python", sys.version
    yield "implementation", sys.implementation.name
    yield "executable", sys.executable
    yield "kernel", f"{system.sysname} {system.release} {system.machine}"
    yield "node", os.environ.get("MLP_NODE") or system.nodename
    yield "image", os.environ.get("MLP_IMAGE", "")
    yield "cpus", str(len(os.sched_getaffinity(0)))
    with open("/proc/cpuinfo", errors="replace") as file:
        for line in file.read(8192).splitlines():
            if line.startswith("model name"):
                yield "cpu", line.partition(":")[2]
                break
    for name in _gpus():
        yield "gpu", name
    seen = set()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                package, _, version = name.rpartition(".")[0].partition("-")
                if package.lower() not in seen:  # the first on the path is the one that is imported
                    seen.add(package.lower())
                    yield "package", f"{package} {version.partition('-py')[0]}"


def _gpus():
    """Return the names of the GPUs that this run can use, of all that the driver lists."""
    mine = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    folder = "/proc/driver/nvidia/gpus"
    try:
        cards = sorted(os.listdir(folder)) if mine else []
        for card in cards:
            with open(f"{folder}/{card}/information", errors="replace") as file:
                facts = dict(line.split(":", 1) for line in file.read(4096).splitlines() if ":" in line)
            if facts.get("GPU UUID", "").strip() in mine or not mine[0].startswith("GPU-"):
                yield facts.get("Model", "").strip()
    except OSError:
        pass


def _record():
    place, attempt = os.environ.get("MLP_WORKSPACE"), os.environ.get("MLP_ATTEMPT", "")
    if not place or not attempt.isdigit():
        return
    path = os.path.join(place, "log", f"environment-{attempt}.txt")
    if os.path.lexists(path):
        return  # another process of this attempt
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return
    lines = [f"{key} {' '.join(str(value).split())}" for key, value in _lines()]
    with os.fdopen(file, "wb") as out:
        out.write("\n".join(lines).encode("utf-8", "backslashreplace"))


def _next():
    """Run the sitecustomize that Python would have imported otherwise."""
    import _frozen_importlib
    import _frozen_importlib_external

    here = os.path.dirname(os.path.abspath(__file__))
    path = [each for each in sys.path if os.path.abspath(each) != here]
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _record()
except Exception as problem:
    del problem
_next()
