"""The platform in Python: the verbs of the command line as methods, for scripts and notebooks.

    import sys; sys.path.insert(0, "mlp.pyz")       # not needed where the platform is installed
    from mlp_client import Platform

    platform = Platform()                           # the login of `mlp login`, or MLP_URL and MLP_TOKEN
    job = platform.run("train.py", "--lr", "0.1", gpu=1)
    job.watch()                                     # in a notebook a chart that grows
    print(job.state, job.metrics()[-1]["loss"])

What the platform refuses, or cannot be reached for, is a Failure, whose text is one line and whose `code` the exit code
of the command line.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from . import chart, datasets, exports, files, models, objects, pipelines, profiles, running, sending
from .checkout import Checkout
from .connection import Connection, Rest
from .definitions import Definition
from .following import ENDED, Follower
from .texts import tr
from .transfer.errors import UNREACHABLE, Failure

LOOK_EVERY_S = 1.0
CHARTED = 1000  # reports


def _quiet(line: str) -> None:
    """Drop a line: results are returned."""


class Platform:
    """One user's view of a platform.

    Without arguments it is the platform of the last `mlp login`, or of MLP_URL and MLP_TOKEN, as in jobs. `note` is
    called with lines that say what happens, such as retries. Raises Failure.
    """

    def __init__(
        self, url: str = "", token: str = "", user: str = "", *, profile: str = "", cacert: str = "",
        patience: float | None = None, note=_quiet,
    ):  # fmt: skip
        given = {"url": url, "token": token, "user": user, "profile": profile, "cacert": cacert}
        where = profiles.where(argparse.Namespace(**{name: value or None for name, value in given.items()}))
        self.note = note
        self.rest = Rest(Connection(where.url, where.cacert, patience, note))
        self.rest.authenticate(where.token, where.user)

    @property
    def url(self) -> str:
        """The address."""
        return self.rest.web.url

    @property
    def user(self) -> str:
        """The user's name."""
        return self.rest.user

    def __repr__(self) -> str:
        return f"Platform({self.url!r}, user={self.user!r})"

    # --- jobs -----------------------------------------------------------------------------------------------------
    def run(self, script: str, *args: str, root: str = "", name: str = "", **fields: Any) -> Job:
        """Send the checkout that the script is in and submit a job of it; `fields` are those of a job, such as `gpu=1`,
        `ram=4096` (MiB), `datasets=["digits"]`. Raises Failure.
        """
        checkout = Checkout([script], root, self.note)
        fields = {"title": running.title_of(script, list(args)), **fields, "name": name or sending.job_name(script)}
        if args:
            fields["args"] = [str(arg) for arg in args]
        options = argparse.Namespace(quiet=True, name=name)
        return Job(self, sending.submit(self.rest, checkout, fields, options, self.note))

    def job(self, name: str) -> Job:
        """Return the job of that name. Raises Failure."""
        return Job(self, self.rest.get(_at("jobs", name)))

    def jobs(self, limit: int = 20, state: str | None = None) -> list[Job]:
        """Return the newest jobs; `state` is creating, running, finished or error. Raises Failure."""
        return [Job(self, row) for row in self.rest.rows("jobs", limit, state=state)]

    # --- sweeps, pipelines, schedules -----------------------------------------------------------------------------
    def sweep(self, file: str, name: str = "", root: str = "") -> Sweep:
        """Begin the sweep of a file, YAML or JSON. Raises Failure."""
        return Sweep(self, self._sent(file, name, root).post(self.rest, "sweeps").json())

    def pipeline(self, file: str, params: dict[str, Any] | None = None, *, fresh: bool = False, name: str = "",
                 root: str = "") -> PipelineRun:  # fmt: skip
        """Run a pipeline, of a file or stored under that name. Raises Failure."""
        options = argparse.Namespace(file=file, param=[], fresh=fresh, name=name, root=root, quiet=True, detach=True)
        options.params = params or {}
        return PipelineRun(self, pipelines.run_pipeline(self.rest, options, self.note))

    def schedule(self, file: str, name: str = "", root: str = "") -> dict[str, Any]:
        """Create the schedule of a file; return it. Raises Failure."""
        return self._sent(file, name, root).post(self.rest, "schedules").json()

    def _sent(self, file: str, name: str, root: str) -> Definition:
        definition = Definition(file, name)
        definition.send(self.rest, argparse.Namespace(root=root, quiet=True), self.note)
        return definition

    # --- models, applications, datasets ---------------------------------------------------------------------------
    def create_model(
        self, name: str, source: str, title: str = "", packages: Sequence[str] = (), environment: str = "",
        external: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Make a model of `job`, `job/path`, `home/path` or `s3/bucket/path`, and wait until it is checked; `packages`
        are requirements in place of those that it comes with, `environment` names an environment in place of both. The
        files of an `external` one stay in the bucket. Raises Failure.
        """
        options = argparse.Namespace(
            name=name,
            source=source,
            title=title or None,
            tenant=None,
            requirements=None,
            package=packages,
            environment=environment or None,
            external=external,
        )
        return models.create_model(self.rest, options, self.note)

    def pull_model(self, name: str, folder: str = "") -> dict[str, Any]:
        """Fetch the files of a model. Raises Failure."""
        options = argparse.Namespace(name=name, dir=folder, quiet=True)
        return models.pull_model(self.rest, options, self.note)

    def deploy(self, model: str, name: str = "", **fields: Any) -> dict[str, Any]:
        """Serve a model, or the version of an alias (`models:/churn@champion`), and wait until it answers; return the
        application, whose `url` takes requests. `fields` are those of an application, such as `cpu=1` or
        `replicas="0-4"`. Raises Failure.
        """
        names = "title", "gpu", "gpu_type", "cpu", "ram", "tenant", "public", "environment"
        names += ("replicas", "target", "record")
        empty = dict.fromkeys(names)
        if fields.keys() - empty:
            raise TypeError(f"not a field of an application: {', '.join(sorted(fields.keys() - empty))}")
        options = argparse.Namespace(model=model, name=name, detach=False, **{**empty, **fields})
        return models.deploy(self.rest, options, self.note)

    def push(self, folder: str, name: str, title: str = "", to: str = "") -> dict[str, Any]:
        """Send a folder as a dataset, with `to` to a bucket (`s3/photos/june`), where they stay. Raises Failure."""
        options = argparse.Namespace(
            dir=folder, name=name, title=title, to=to, replace=False, follow=False, all=False, jobs=4, quiet=True
        )
        return files.push(self.rest, options, self.note)

    def create_dataset(
        self, name: str, source: str, title: str | None = None, external: bool = False
    ) -> dict[str, Any]:
        """Make a dataset of the output of a job (`prepare/data`), of what was uploaded (`home/data`), or of a bucket
        (`s3/photos/june`), and wait until it is copied, or listed where it is `external`: the files stay in the bucket
        then. Raises Failure.
        """
        options = argparse.Namespace(name=name, source=source, title=title, tenant=None, external=external)
        return datasets.create_dataset(self.rest, options, self.note)

    def export(self, source: str, target: str) -> dict[str, Any]:
        """Send a dataset (`datasets/photos`), a model (`models/net`) or the output of a job (`fit` or `fit/plots`) to
        `s3/{bucket}[/{path}]`, and wait until it is there; return the export. Raises Failure.
        """
        options = argparse.Namespace(source=source, target=target, detach=False)
        return exports.create_export(self.rest, options, self.note)

    def pull(self, dataset: str, folder: str = "") -> dict[str, Any]:
        """Fetch a dataset. Raises Failure."""
        options = argparse.Namespace(name=dataset, dir=folder, dataset=True, only=None, jobs=4, quiet=True)
        return files.pull(self.rest, options, self.note)


def _at(kind: str, name: str) -> str:
    return f"{kind}/{quote(name, safe='')}"


class Followed:
    """An object of the platform: `fields` as REST had them last, `refresh()` reads them again."""

    def __init__(self, platform: Platform, fields: dict[str, Any]):
        self.platform, self.fields = platform, fields

    @property
    def path(self) -> str:
        """The path below the user's address."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """The state, read again."""
        return self.refresh().fields["state"]

    def refresh(self):
        """Read it again; return it. Raises Failure."""
        self.fields = self.platform.rest.get(self.path)
        return self

    def wait(self, timeout: float | None = None):
        """Wait until it has ended, at most `timeout` seconds; return it. Raises Failure when the time is over."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.state not in ENDED:
            if end is not None and time.monotonic() >= end:
                raise Failure(UNREACHABLE, tr("{name} has not ended yet", name=self.path))
            time.sleep(LOOK_EVERY_S)
        return self

    def cancel(self):
        """Cancel it; return it. Raises Failure."""
        self.platform.rest.send("PUT", self.path + ":cancel")
        return self.refresh()


class Job(Followed):
    """A job."""

    @property
    def name(self) -> str:
        """The name."""
        return self.fields["name"]

    @property
    def path(self) -> str:
        """The path below the user's address."""
        return _at("jobs", self.name)

    @property
    def url(self) -> str:
        """The address of its page."""
        return f"{self.platform.url}/jobs/{self.name}"

    def log(self) -> str:
        """Return what it has printed so far. Raises Failure."""
        parts: list[str] = []
        follower = Follower(self.platform.rest, self.name)
        follower.print = parts.append
        follower.print_what_is_there()
        return "".join(parts)

    def metrics(self, limit: int = CHARTED) -> list[dict[str, Any]]:
        """Return its newest reports, oldest first. Raises Failure."""
        return self.platform.rest.rows(self.path + "/metrics", limit)[::-1]

    def rerun(self, set: dict[str, Any] | None = None, **fields: Any) -> Job:
        """Run it again with its code as it was; `set` replaces arguments, {"lr": 0.01}. Raises Failure."""
        if set:
            args = self.refresh().fields["args"]
            for name, value in set.items():
                args = objects.replaced(args, name, str(value))
            fields["args"] = args
        return Job(self.platform, self.platform.rest.send("POST", self.path + ":rerun", fields).json())

    def pull(self, folder: str = "", only: list[str] | None = None) -> dict[str, Any]:
        """Fetch its output, or the files that match one of the patterns `only`. Raises Failure."""
        options = argparse.Namespace(name=self.name, dir=folder, dataset=False, only=only, jobs=4, quiet=True)
        return files.pull(self.platform.rest, options, self.platform.note)

    def watch(self) -> Job:
        """Show state and metrics until it has ended: in a notebook as a chart that grows, elsewhere as lines."""
        shown = chart.Display(self)
        while True:
            ended = self.state in ENDED
            shown.update()
            if ended:
                return self
            time.sleep(LOOK_EVERY_S)

    def __repr__(self) -> str:
        return f"Job({self.name!r}, state={self.fields['state']!r})"

    def _repr_html_(self) -> str:
        return chart.html(self.fields, self.metrics(), self.url)


class Sweep(Followed):
    """A sweep."""

    @property
    def path(self) -> str:
        """The path below the user's address."""
        return _at("sweeps", self.fields["name"])

    @property
    def best(self) -> list[dict[str, Any]]:
        """The best trial, or those on the Pareto front, read again."""
        return self.refresh().fields["best"]

    def trials(self) -> list[dict[str, Any]]:
        """Return the trials, newest first. Raises Failure."""
        return self.platform.rest.rows(self.path + "/trials", 1 << 20)

    def __repr__(self) -> str:
        return f"Sweep({self.fields['name']!r}, state={self.fields['state']!r})"


class PipelineRun(Followed):
    """A run of a pipeline."""

    @property
    def path(self) -> str:
        """The path below the user's address."""
        return f"{_at('pipelines', self.fields['pipeline'])}/runs/{self.fields['number']}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps, read again."""
        return self.refresh().fields["steps"]

    def __repr__(self) -> str:
        number = self.fields["number"]
        return f"PipelineRun({self.fields['pipeline']!r}, {number}, state={self.fields['state']!r})"
