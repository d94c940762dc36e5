"""`model`, `deploy` and `app`: outputs become models, models applications."""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import re
import shutil
import tempfile
import time
import zipfile
from urllib.parse import quote

from . import automation, datasets, objects, running, shown
from .connection import Rest
from .texts import tr
from .transfer.errors import DAMAGED, INTERRUPTED, LOCAL, REFUSED, Failure, Trouble
from .transfer.progress import Progress, size

SETTLED = ("failed", "canary")  # phases of a move that nobody waits for
LOOK_EVERY_S = 0.5
BLOCK = 1 << 20


def declare(command) -> None:
    """Add the verbs."""
    models = command.group("model", tr("make models of outputs, and fetch them"))
    parser = models("create", create_model, tr("make a model of the output of a job, and wait until it is checked"))
    parser.add_argument("name", metavar="MODEL", help=tr("letters a to z"))
    parser.add_argument(
        "source",
        metavar="JOB[/PATH]",
        help=tr("output of a job, home/PATH (uploaded), s3/BUCKET/PATH or models/MODEL (to copy an external one)"),
    )
    parser.add_argument("--external", action="store_true", help=tr("leave the files in the bucket: only list them"))
    parser.add_argument("--title", help=tr("what pages call it"))
    parser.add_argument("--tenant", help=tr("tenant whose resources it uses"))
    parser.add_argument("-r", "--requirements", metavar="FILE", help=tr("file of packages to install"))
    words = tr("package to install: polars>=1.9")
    parser.add_argument("--package", action="append", metavar="LINE", help=words)
    named = tr("named environment, in place of packages")
    parser.add_argument("--environment", metavar="NAME[@N]", help=named)
    automation.add_list(models, list_models)
    automation.add_name(models("show", show_model, tr("print a model")), "MODEL")
    parser = automation.add_name(models("pull", pull_model, tr("fetch the files of a model")), "MODEL")
    parser.add_argument("dir", metavar="DIR", nargs="?", help=tr("folder to write to (default: the model's name)"))
    parser = automation.add_name(models("register", register, tr("make it a version of a registered model")), "MODEL")
    parser.add_argument("--as", dest="registered", metavar="NAME", help=tr("registered model (default: the same name)"))
    parser.add_argument("--alias", metavar="ALIAS", help=tr("alias that names this version then, such as champion"))
    automation.add_removal(models, "models", "MODEL", tr("delete a model"), has_trash=True)

    parser = command("deploy", deploy, tr("serve a model as an application, and wait until it answers"))
    parser.add_argument("model", metavar="MODEL", help=tr("a model; or an alias to follow: models:/churn@champion"))
    parser.add_argument("--name", help=tr("name of the application: letters a to z (default: made from the model's)"))
    parser.add_argument("--title", help=tr("what pages call it"))
    parser.add_argument("--gpu", type=int, metavar="N", help=tr("number of GPUs"))
    parser.add_argument("--gpu-type", metavar="TYPE", help=tr("type of its GPUs, such as a100"))
    parser.add_argument("--cpu", type=float, metavar="N", help=tr("number of CPUs"))
    parser.add_argument("--ram", type=running.memory, metavar="SIZE", help=tr("memory: 512, 512MiB or 4GiB"))
    parser.add_argument("--tenant", help=tr("tenant whose resources it uses"))
    parser.add_argument("--environment", metavar="NAME[@N]", help=named)
    parser.add_argument("--public", action="store_const", const=True, help=tr("answer without a token"))
    parser.add_argument(
        "--replicas", metavar="N[-M]", help=tr("how many processes serve it: 3, or 0-4 by its requests")
    )
    parser.add_argument("--target", type=int, metavar="N", help=tr("requests at once per replica"))
    parser.add_argument(
        "--record", type=float, metavar="PERCENT", help=tr("record this share of its requests and answers")
    )
    parser.add_argument("-d", "--detach", action="store_true", help=tr("do not wait"))

    apps = command.group("app", tr("list, stop and start applications"))
    automation.add_list(apps, list_apps)
    automation.add_name(apps("show", show_app, tr("print an application")), "APP")
    automation.add_name(apps("logs", app_log, tr("print the log of an application")), "APP")
    automation.add_calls(apps, "apps", "APP", {
        "stop": tr("stop an application; it holds no resources then"),
        "start": tr("start an application that was stopped or has failed"),
        "restart": tr("restart an application without failing a request"),
    })  # fmt: skip
    automation.add_removal(apps, "apps", "APP", tr("delete an application"), has_trash=True)


# --- models -------------------------------------------------------------------------------------------------------
def create_model(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Make a model and wait until it is ready. Raises Failure where it does not load."""
    fields = {
        "name": options.name,
        "src": _source_of(options.source),
        "title": options.title,
        "tenant": options.tenant,
    }
    fields["requirements"] = running.packages_of(options) or None
    fields["environment"] = options.environment
    if options.external:
        fields["external"] = True
    model = rest.send("POST", "models", {key: value for key, value in fields.items() if value is not None}).json()
    path = f"models/{quote(options.name, safe='')}"
    while model["state"] == "creating":
        time.sleep(LOOK_EVERY_S)
        model = rest.get(path)
    if model["state"] != "ready":
        raise Failure(REFUSED, tr("model {name}: {reason}", name=options.name, reason=model["reason"]))
    options.show = _print_model
    return model


def _source_of(given: str) -> str:
    return given if given.startswith("models/") else datasets.source_of(given)


def list_models(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest models. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), lambda row: row["state"]),
        (tr("FORMAT"), lambda row: row["format"] or "-"),
        (tr("SIZE"), lambda row: size(row["size"])),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("SOURCE"), lambda row: row["src"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("models", options.limit)


def show_model(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return a model. Raises Failure."""
    options.show = _print_model
    return rest.get(f"models/{quote(options.name, safe='')}")


def _print_model(model: dict) -> None:
    facts = [model["state"], model["format"], size(model["size"]), model["src"], model["reason"]]
    shown.line(tr("{name}: {value}", name=model["name"], value="  ".join(filter(None, facts))))
    for path, file in sorted((model["checksums"] or {}).items()):
        shown.line(f"  {path}  {size(file['size'])}")


def pull_model(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Fetch the files of a model: all of them, with the checksums that the platform has, or none. Raises Failure."""
    path = f"models/{quote(options.name, safe='')}"
    model, folder = rest.get(path), options.dir or options.name
    files = model["checksums"] or {}
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".mlp-", dir=folder) as drafts:
            packed = os.path.join(drafts, "packed")
            with Progress(tr("fetching"), model["size"], len(files), bool(options.quiet)) as progress:
                rest.web.note = progress.say
                if model.get("external"):
                    _fetch_each(rest, path, sorted(files), drafts, progress)
                else:
                    address = rest.path(path + "/download")
                    opened = functools.partial(rest.web.open, address, {})
                    rest.web.patiently(lambda: _fetch(rest, opened, packed, progress))
                    _unpack(packed, sorted(files), drafts)
            for name in files:
                if _sum(os.path.join(drafts, "files", name)) != files[name]["sha256"]:
                    raise Failure(DAMAGED, tr("{file}: checksum mismatch", file=name))
            for name in files:
                target = os.path.join(folder, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(os.path.join(drafts, "files", name), target)
    except OSError as problem:
        raise Failure(LOCAL, f"{problem.filename or folder}: {problem.strerror}")
    options.show = lambda row: shown.line(tr("{files} files with {bytes} bytes in {dir}", **row))
    return {"model": options.name, "dir": folder, "files": len(files), "bytes": model["size"]}


class _Fetched:
    """A body that was read to its end, in the form of an answer."""

    status = 200


def _fetch(rest: Rest, opened, draft: str, progress: Progress) -> _Fetched:
    """Write the body of the answer that `opened` returns to a file. Raises Trouble, Failure."""
    response, done = opened(), 0
    try:
        with open(draft, "wb") as file:
            while True:
                block = rest.web.read_block(response)
                if not block:
                    return _Fetched()
                file.write(block)
                progress.add(len(block))
                done += len(block)
    except Trouble:
        progress.add(-done)
        raise


def _fetch_each(rest: Rest, path: str, names: list, drafts: str, progress: Progress) -> None:
    """Fetch the files of an external model from the bucket, to below `files`. Raises Failure."""
    folder = _folders(names, drafts)
    for name in names:
        draft = os.path.join(folder, name)
        rest.web.patiently(lambda name=name, draft=draft: _fetch_one(rest, path, name, draft, progress))


def _fetch_one(rest: Rest, path: str, name: str, draft: str, progress: Progress) -> _Fetched:
    address = rest.get(f"{path}/address", file=name)["address"]
    if address:
        return _fetch(rest, lambda: rest.web.elsewhere(address, {}), draft, progress)
    with open(draft, "wb"):  # without bytes
        return _Fetched()


def _folders(names: list, drafts: str) -> str:
    """Make the folders of the files, and return the one that they are in. Raises Failure."""
    folder = os.path.join(drafts, "files")
    for name in names:
        parts = name.split("/")
        if name.startswith("/") or "\\" in name or any(part in ("", ".", "..") for part in parts):
            raise Failure(DAMAGED, tr("{file}: not a name of a file", file=name))
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    return folder


def _unpack(packed: str, names: list, drafts: str) -> None:
    """Write the files below `files`: a model of one file is sent as it is, others as a zip. Raises Failure."""
    folder = _folders(names, drafts)
    if len(names) == 1:
        os.replace(packed, os.path.join(folder, names[0]))
        return
    try:
        with zipfile.ZipFile(packed) as archive:
            for name in names:
                with archive.open(name) as source, open(os.path.join(folder, name), "wb") as target:
                    shutil.copyfileobj(source, target, BLOCK)
    except (zipfile.BadZipFile, KeyError) as problem:
        raise Failure(DAMAGED, str(problem))


def _sum(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def register(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Make a model a version of a registered model, which is created if there is none. Raises Failure."""
    name = options.registered or options.name
    path = f"registry/{quote(name, safe='')}"
    if rest.web.call("GET", rest.path(path), expect=(403,)).status == 403:
        rest.send("POST", "registry", {"name": name}, expect=(403,))
    version = rest.send("POST", path + "/versions", {"source": f"models/{options.name}"}).json()
    if options.alias:
        alias = f"{path}/aliases/{quote(options.alias, safe='')}"
        version = rest.send("PUT", alias, {"version": version["version"]}).json()
    options.show = lambda row: shown.line(
        tr("{name}: {value}", name=row["name"], value=" ".join([str(row["version"]), *row.get("aliases", ())]))
    )
    return version


# --- applications -------------------------------------------------------------------------------------------------
def deploy(rest: Rest, options: argparse.Namespace, say):
    """Serve a model; one that is served under that name is replaced without failing a request. Raises Failure."""
    key = "follows" if options.model.startswith("models:/") else "model_name"
    name = options.name or _app_name(options.model)
    fields = {
        each: getattr(options, each)
        for each in ("title", "gpu", "gpu_type", "cpu", "ram", "tenant", "public", "environment")
        if getattr(options, each) is not None
    }
    numbers = _replicas(options)
    path = f"apps/{quote(name, safe='')}"
    if rest.web.call("GET", rest.path(path), expect=(403,)).status == 403:
        more = {"replicas": numbers} if numbers else {}
        app = rest.send("POST", "apps", {"name": name, key: options.model, **fields, **more}).json()
    elif fields:
        raise Failure(REFUSED, tr("application {name} exists; its resources are those it was created with", name=name))
    else:
        if numbers:
            rest.send("PUT", path + "/replicas", numbers)
        app = rest.send("PUT", path + "/rollout", {key: options.model}).json()
        say(tr("application {name} moves to {model}", name=name, model=options.model))
    if options.record is not None:
        rest.send("PUT", path + "/recording", {"share": options.record / 100})
    options.show = _print_app
    return app if options.detach else _wait(rest, path, app, options, say)


def _replicas(options: argparse.Namespace) -> dict:
    """Return the numbers of `--replicas 3`, `--replicas 0-4` and `--target 8` as REST has them. Raises Failure."""
    numbers = {} if options.target is None else {"target": options.target}
    if options.replicas is not None:
        match = re.fullmatch("([0-9]{1,3})(?:-([0-9]{1,3}))?", str(options.replicas))
        if match is None:
            raise Failure(REFUSED, tr("--replicas takes a number such as 3, or two such as 0-4"))
        numbers.update(min=int(match[1]), max=int(match[2] or match[1]))
    return numbers


def _app_name(model: str) -> str:
    text = model[len("models:/") :].partition("@")[0] if model.startswith("models:/") else model
    return re.sub("[^a-z]", "", text.rpartition("/")[2].lower())[:50] or "app"


def _wait(rest: Rest, path: str, app: dict, options: argparse.Namespace, say):
    """Wait until the application serves the model; say why it is queued. An interrupt leaves it as it is."""
    told = ""
    try:
        while app["state"] == "creating" or (app["rollout"] and app["rollout"]["phase"] not in SETTLED):
            if app["queued"]:
                answer = rest.web.call("GET", rest.path(path + "/queue"), expect=(403,))
                reason = answer.json()["reason"] if answer.status == 200 else ""
                if reason and reason != told:
                    say(tr("queued: {reason}", reason=reason))
                    told = reason
            time.sleep(LOOK_EVERY_S)
            app = rest.get(path)
    except KeyboardInterrupt:
        options.code = INTERRUPTED
        return None
    rollout = app["rollout"] or {}
    if app["state"] == "ready" and rollout.get("phase") == "canary":
        say(tr("{percent} % of the requests go to {model}", percent=rollout["percent"], model=rollout["model_name"]))
        return app
    problem = app["reason"] if app["state"] != "ready" else rollout.get("reason")
    if app["state"] != "ready" or rollout:
        raise Failure(REFUSED, tr("application {name}: {reason}", name=app["name"], reason=problem))
    return app


def list_apps(rest: Rest, options: argparse.Namespace, say) -> list:
    """Return the newest applications. Raises Failure."""
    columns = (
        (tr("NAME"), lambda row: row["name"]),
        (tr("STATE"), _app_state),
        (tr("MODEL"), lambda row: row["follows"] or row["model_name"]),
        (tr("AGE"), lambda row: objects.age(row["created"])),
        (tr("ADDRESS"), lambda row: row["url"]),
    )
    options.show = lambda rows: shown.table(rows, columns)
    return rest.rows("apps", options.limit)


def show_app(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return an application. Raises Failure."""
    options.show = _print_app
    return rest.get(f"apps/{quote(options.name, safe='')}")


def app_log(rest: Rest, options: argparse.Namespace, say) -> dict:
    """Return the log of an application. Raises Failure."""
    offset, parts = 0, []
    while True:
        answer = rest.web.call("GET", rest.path(f"apps/{quote(options.name, safe='')}/log", offset=offset))
        if not answer.body:
            break
        parts.append(answer.body)
        offset += len(answer.body)
    text = b"".join(parts).decode("utf-8", "replace")
    options.show = lambda row: shown.text(row["log"])
    return {"app": options.name, "log": text}


def _app_state(app: dict) -> str:
    return "stopped" if app["stopped"] else "queued" if app["queued"] else app["state"]


def _print_app(app: dict) -> None:
    shown.line(app["url"] if app["state"] == "ready" else _app_state(app))
    if app["reason"]:
        shown.line(app["reason"])
