"""`run`: a script of this machine becomes a job, which is followed to its end."""

from __future__ import annotations

import argparse
import codecs
import os
import re

from . import interrupting, sending, shown
from .checkout import Checkout
from .connection import Rest
from .following import Follower, exit_code
from .interrupting import Followed
from .texts import tr
from .transfer.errors import INTERRUPTED, LOCAL, USAGE, Failure

UNITS = {"": 1, "m": 1, "mi": 1, "mib": 1, "g": 1024, "gi": 1024, "gib": 1024}
PLAIN = ("name", "title", "gpu", "cpu", "ram", "runtime", "tenant", "project", "group", "notes", "retries", "timeout")
PLAIN += ("priority", "workers", "network", "environment", "image", "gpu_type", "output_uri")


def declare(command) -> None:
    """Add the verb."""
    usage = tr("mlp run [options] FILE [-- ARGS]")
    parser = command("run", run, tr("run a script of this machine as a job"), usage=usage)
    parser.add_argument("script", metavar="FILE", help=tr("the script; its git checkout, or its folder, is sent"))
    parser.set_defaults(takes_args=True)
    parser.add_argument("--root", metavar="DIR", help=tr("send this folder in place of the whole checkout"))
    job_options(parser)
    interrupting.options_of(parser)
    parser.add_argument("-d", "--detach", action="store_true", help=tr("print the job's name and do not follow it"))


def job_options(parser: argparse.ArgumentParser, only=None) -> None:
    """Add the options for the fields of a job; `only` those fields, where not all can be given."""
    group = parser.add_argument_group(tr("the job"))

    def option(field: str, *names: str, **how) -> None:
        if only is None or field in only or field in ("env", "datasets", "requirements", "preemptible"):
            group.add_argument(*names, **how)
        else:
            parser.set_defaults(**{names[-1].lstrip("-").replace("-", "_"): None})

    option("name", "--name", help=tr("name: letters a to z (default: made from the script's)"))
    option("title", "--title", help=tr("what pages call it (default: the script and its arguments)"))
    option("gpu", "--gpu", type=int, metavar="N", help=tr("GPUs of each worker"))
    option("gpu_type", "--gpu-type", metavar="TYPE", help=tr("type of its GPUs, such as a100"))
    option("cpu", "--cpu", type=float, metavar="N", help=tr("CPUs of each worker"))
    option("ram", "--ram", type=memory, metavar="SIZE", help=tr("memory of each worker: 512, 512MiB or 4GiB"))
    option("workers", "--workers", type=int, metavar="N", help=tr("number of workers"))
    option("env", "--env", action="append", type=_pair, metavar="K=V", help=tr("environment; K alone copies it"))
    option("datasets", "--dataset", action="append", metavar="NAME", help=tr("dataset that it reads: name or name@2"))
    option("inputs", "--input", action="append", type=_pair, metavar="NAME=JOB[/PATH]", help=tr("output of a job"))
    option("output_uri", "--output-uri", metavar="s3/BUCKET[/PATH]", help=tr("where its output is sent at the end"))
    option("requirements", "-r", "--requirements", metavar="FILE", help=tr("file of packages to install"))
    option("requirements", "--package", action="append", metavar="LINE", help=tr("package to install: polars>=1.9"))
    option("environment", "--environment", metavar="NAME[@N]", help=tr("named environment, in place of packages"))
    words = tr("do not install what the script's header, requirements.txt or pyproject.toml names")
    option("find", "--no-requirements", action="store_true", help=words)
    option("project", "--project", help=tr("project of the run"))
    option("tags", "--tag", action="append", metavar="K[=V]", help=tr("tag of the run"))
    option("group", "--group", help=tr("group of runs"))
    option("notes", "--notes", help=tr("notes in Markdown"))
    option("runtime", "--runtime", help=tr("python, torch or tf"))
    option("image", "--image", metavar="NAME", help=tr("on Kubernetes: image that the platform offers"))
    option("tenant", "--tenant", help=tr("tenant whose resources it uses"))
    option("retries", "--retries", type=int, metavar="N", help=tr("how often it is run again after a failure"))
    option("timeout", "--timeout", type=_duration, metavar="TIME", help=tr("time limit: 90s, 90m or 1h30m"))
    option("priority", "--priority", type=int, metavar="N", help=tr("among your own queued jobs, -100 to 100"))
    option("preemptible", "--preemptible", action="store_true", help=tr("may be interrupted for a waiting job"))
    option("network", "--network", choices=("open", "platform", "none"), help=tr("what it may reach"))


def fields_of(options: argparse.Namespace) -> dict:
    """Return the fields of a job that the options name. Raises Failure."""
    fields = {name: getattr(options, name) for name in PLAIN if getattr(options, name) is not None}
    if options.preemptible:
        fields["preemptible"] = True
    if options.env:
        fields["env"] = {name: _value(name, value) for name, value in options.env}
    if options.dataset:
        fields["datasets"] = options.dataset
    if options.input:
        fields["inputs"] = {name: value or "" for name, value in options.input}
    if options.tag:
        fields["tags"] = {tag.partition("=")[0]: tag.partition("=")[2] for tag in options.tag}
    if packages := packages_of(options):
        fields["requirements"] = packages
    return fields


def packages_of(options: argparse.Namespace) -> str:
    """Return the lines of -r and --package, "" without any. Raises Failure for a file that cannot be read."""
    lines = list(options.package or ())
    if options.requirements:
        try:
            with open(options.requirements, "rb") as file:
                data = file.read()
            # As pip does: `pip freeze > requirements.txt` of PowerShell writes UTF-16.
            is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            text = data.decode("utf-16" if is_wide else "utf-8-sig")
        except (OSError, ValueError) as problem:
            raise Failure(LOCAL, tr("{file} cannot be read: {problem}", file=options.requirements, problem=problem))
        lines.insert(0, text.replace("\r\n", "\n").strip())
    return "\n".join(lines)


def run(rest: Rest, options: argparse.Namespace, say):
    """Send the checkout, submit the job, and follow it unless --detach is given. Raises Failure."""
    args = options.args
    checkout = Checkout([options.script], options.root or "", say)
    fields = fields_of(options)
    fields.setdefault("name", sending.job_name(options.script))
    fields.setdefault("title", title_of(options.script, args))
    if args:
        fields["args"] = args
    if options.no_requirements:
        fields["find_requirements"] = False
    job = sending.submit(rest, checkout, fields, options, say)
    return follow_new(rest, job, options, say)


def follow_new(rest: Rest, job: dict, options: argparse.Namespace, say):
    """Follow a job that was submitted just now, or with --detach return it."""
    say(tr("job {name}: {url}/jobs/{name}", name=job["name"], url=rest.web.url))
    if options.detach:
        options.show = lambda job: shown.line(job["name"])
        return job
    return follow(rest, job["name"], options, say)


def title_of(script: str, args: list) -> str:
    """Return a title for the job of a script."""
    words = " ".join([os.path.basename(script), *args])
    return "".join(char if char.isprintable() else " " for char in words)[:200].strip()


def follow(rest: Rest, name: str, options: argparse.Namespace, say, default: str = "cancel"):
    """Follow the job to its end, and let the command exit as it did; return the job for --json. `default` is what an
    interrupt does where nobody can be asked.
    """
    follower = Follower(rest, name, bool(options.quiet))
    if options.json:
        follower.print = lambda text: None  # standard output has the result only
    while True:
        try:
            job = follower.to_end()
            break
        except KeyboardInterrupt:
            if not interrupting.stay(rest, _followed(name), options, say, default):
                options.code = INTERRUPTED
                return None
            follower.over.clear()
    options.code = exit_code(job)
    options.show = lambda ended: _tell_end(ended, say, bool(follower.offset))
    return job


def _tell_end(job: dict, say, printed: bool) -> None:
    """Print how the job has ended. The last lines of its log, in the reason, are there already if it was `printed`."""
    word = job["state"] if job["state"] == "finished" else job.get("outcome") or "failed"
    reason, *lines = (job.get("reason") or "").splitlines() or [""]
    parts = [tr("job {name} {word}", name=job["name"], word=word), job.get("diagnosis") or "", reason]
    say(": ".join(dict.fromkeys(filter(None, parts))))
    for line in [] if printed else lines:
        say(line)


def _followed(name: str) -> Followed:
    return Followed(
        f"jobs/{name}:cancel",
        tr("[c]ancel the job, [d]etach, or Enter to go on: "),
        tr("job {name} is being cancelled", name=name),
        tr("job {name} goes on; follow it by: mlp logs -f {name}; cancel it by: mlp cancel {name}", name=name),
    )


def _value(name: str, value) -> str:
    if value is None:
        if name not in os.environ:
            raise Failure(USAGE, tr("--env {name}: there is no such variable here", name=name))
        return os.environ[name]
    return value


def _pair(text: str):
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError
    return name, value if equals else None


def memory(text: str) -> int:
    """Return MiB. Raises ValueError, KeyError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    return round(float(match.group(1)) * UNITS[match.group(2)]) if match else int(text)


def _duration(text: str) -> int:
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip().lower())
    if not text.strip() or not match:
        raise ValueError
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_pair.__name__, memory.__name__, _duration.__name__ = "NAME=VALUE", "size", "time"
