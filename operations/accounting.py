"""What the resource accounting is compared with: the platform's objects of all kinds."""

from __future__ import annotations

from django.db.models import Q

from apps import lifecycle as apps
from apps.models import Application
from apps.models import State as AppState
from datasets import claims
from datasets import lifecycle as datasets
from datasets.models import Dataset
from jobs import lifecycle as jobs
from jobs.artifacts import space as artifacts
from jobs.models import ArtifactSpace, Job
from models_app import external
from models_app import lifecycle as models
from models_app.models import Model
from resources import books, tcc
from workspaces import lifecycle as workspaces
from workspaces.models import Workspace

# The resources of each kind of object by its own row: a job's and a workspace's while they are reserved, those of a
# dataset, of a run's artifacts and of a model until the row is deleted, an application's until it has failed, or is
# stopped and its run is gone, or its row is deleted.
# In the order in which their rows are locked (kernel.locking).
SOURCES = (
    books.Source("dataset", datasets.APPLIER, Dataset, Q(), lambda dataset: tcc.amounts(rom=claims.rom_of(dataset))),
    books.Source("job", jobs.APPLIER, Job, Q(reserved=True), lambda job: tcc.amounts(**job.needs)),
    books.Source("artifacts", artifacts.APPLIER, ArtifactSpace, Q(), lambda space: tcc.amounts(rom=space.reserved)),
    books.Source("model", models.APPLIER, Model, Q(), lambda model: tcc.amounts(rom=external.rom_of(model))),
    books.Source(
        "app",
        apps.APPLIER,
        Application,
        Q(reserved=True) & (~Q(state=AppState.ERROR) | ~Q(run_name="")),
        lambda app: tcc.amounts(gpu=app.gpu, cpu=app.cpu, ram=app.ram),
    ),
    books.Source(
        "workspace",
        workspaces.APPLIER,
        Workspace,
        Q(reserved=True),
        lambda workspace: tcc.amounts(gpu=workspace.gpu, cpu=workspace.cpu, ram=workspace.ram),
    ),
)
