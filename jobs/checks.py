"""What a new job may ask for, beside what its tenant has. Used by lifecycle.create_job."""

from __future__ import annotations

import runners
from accounts.sharing.access import Visitor
from datasets import sources
from datasets.buckets import rows as buckets
from kernel import names, storage
from kernel.errors import Refused
from kernel.messages import Message
from resources import products, tcc
from resources.models import Tenant
from snapshots import scan, store
from snapshots.manifest import Manifest

from .code import cloning
from .code.snapshot_code import Taken
from .models import Job, Snapshot
from .models.submission import NOTEBOOK
from .notebooks import parameters, reading
from .packages import finding, text
from .packages.named import references

MAX_FOUND_BYTES = 2 << 20  # of a script with a header, or of a file beside it


def code_of(user, entry: str, code_from: str | None, script: str | None, visitor: Visitor | None) -> Snapshot | None:
    """Return the code of the job `code_from`; None for the script's folder as it is now. Raises Refused."""
    earlier = cloning.code_of(visitor or Visitor(user), code_from) if code_from else None
    if earlier is None and script is None:
        scan.script_of(storage.home_dir(user.username), names.entry(entry))
    return earlier


def need_possible(
    tenant: Tenant, username: str, workers: int, network: str, preemptible: bool = False, image: str = "", *,
    gpu: int = 0, cpu: float = 1, ram: int = 512, gpu_type: str = "",
) -> None:  # fmt: skip
    """Raise Refused for what the platform, the tenant or the user's limit can never give."""
    need_allowed(tenant, workers, network)
    need_image(image)
    products.need_possible(gpu_type, gpu, workers)
    needs = {"gpu": gpu * workers, "cpu": cpu * workers, "ram": ram * workers}
    tcc.never_fits(tenant, username, preemptible, **needs)


def need_allowed(tenant: Tenant, workers: int, network: str) -> None:
    """Raise Refused for what the platform or the tenant does not allow."""
    if workers > 1 and not runners.get().many_workers:
        raise Refused("must be 1: this platform does not run jobs with more than one worker", field="workers")
    if network and runners.narrowest(network, tenant.network_policy) != network:
        raise Refused("at most %(policy)s is allowed in this tenant", field="network", policy=tenant.network_policy)


def need_image(name: str) -> None:
    """Raise Refused for an image that this platform does not offer, with those that it does."""
    images = runners.get().images
    if not name or name in (images or ()):
        return
    if images is None:
        raise Refused(
            "images are for jobs on a Kubernetes cluster; here a job gets its packages by a named environment",
            field="image",
        )
    if not images:
        raise Refused("this platform offers no images; an administrator can list them in MLP_K8S_IMAGES", field="image")
    raise Refused("must be one of: %(names)s", field="image", names=", ".join(sorted(images)))


def requirements_of(user, wanted: str, find: bool, entry: str, code: Manifest) -> str:
    """Return the requirements of a job: those that are wanted, or with `find` and without any those that come with the
    script. Raises Refused for what is no requirement, and for files that are not in the code.
    """

    def read(path: str) -> str | None:
        file = code.file(path)
        blob = store.open_blob(user.username, file.blob) if file is not None else None
        if blob is None:
            return None
        with blob:
            return text.decoded(blob.read(MAX_FOUND_BYTES))

    if find and not wanted.strip():
        wanted = finding.found(entry, read)
    for path in text.included(wanted, code.folder):
        if code.file(path) is None:
            raise Refused("%(path)s is not in the code of the job", field=text.FIELD, path=path)
    return wanted


def need_notebook(user, entry: str, args: list | tuple, workers: int, code: Taken) -> None:
    """Raise Refused for a notebook that could not be executed, and for arguments that are no parameters of one."""
    if not entry.endswith(NOTEBOOK):
        return
    if workers > 1:
        raise Refused("must be 1: a notebook is executed by one worker", field="workers")
    parameters.of_arguments(args)
    file = code.manifest.file(entry)
    blob = store.open_blob(user.username, file.blob) if file is not None else None
    if blob is not None:
        with blob:
            reading.need_executable(blob.read(reading.MAX_BYTES + 1), entry)


def packages_of(user, tenant: Tenant, wanted: str, find: bool, environment: str, entry: str, code: Taken) -> dict:
    """Return the columns of a job that say its packages: its requirements, or the version of the named environment,
    which is locked. With an environment the files beside the script are not looked at. Raises Refused.
    """
    if not environment:
        return {"requirements": requirements_of(user, wanted, find, entry, code.manifest)}
    need_environment(tenant, environment, wanted)
    return references.columns(tenant, environment)


def need_environment(tenant: Tenant, environment: str, requirements: str) -> None:
    """Raise Refused unless the named environment can be used, and is all that is asked for."""
    if requirements.strip():
        raise Refused("give either packages or an environment", field=text.FIELD)
    references.resolved(tenant, environment)


def taken(user, name: str) -> Message:
    """Return why the name is not free."""
    if Job.objects.filter(user=user, name=name).exclude(trashed=None).exists():
        return Message("you already have a job named %(name)s; it is in the trash", name=name)
    return Message("you already have a job named %(name)s", name=name)


def need_data(user, wanted: tuple | list, output_uri: str = "") -> None:
    """Raise Refused unless the user has all of these datasets, each with a name of its own, and may write the bucket
    that the output goes to.
    """
    if output_uri:
        bucket, _path = buckets.parse(buckets.spelled(output_uri), "output_uri")
        buckets.find_writable(user, bucket, "output_uri")
    for reference in sources.missing(user, wanted):
        if "/" in reference:
            raise Refused("no dataset %(name)s is shared with you for jobs", field="datasets", name=reference)
        raise Refused("you have no ready dataset named %(name)s", field="datasets", name=reference)
    seen = [sources.parse(user, reference).name for reference in dict.fromkeys(wanted)]
    if doubled := [name for name in seen if seen.count(name) > 1]:  # both would be $MLP_DATASETS/{name}
        raise Refused("two of them are named %(name)s", field="datasets", name=doubled[0])
