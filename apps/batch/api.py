"""The REST calls that score a dataset, with an application's model or any other one."""

from __future__ import annotations

from jobs.serializers import JobOut
from kernel.effects import SUBMIT
from kernel.locking import Missing
from kernel.views import Call, ContractView
from models_app.models import Model

from ..models import Application
from . import scoring
from .serializers import ScoringIn


class ScoringView(ContractView):
    """The job runs the code that answers requests; its results become the dataset `output` when it has finished."""

    def score(self, **of_model):
        """Create the job from the body, with what the address says of the model."""
        body = self.body()
        values = {**of_model, **{field: value for field, value in body.items() if value != ""}}
        return self.answer(scoring.create(user=self.owner, by=self.by, **values))


class AppScore(ScoringView):
    kind = "application"
    calls = {
        "POST": Call("Score a dataset with an application's model", SUBMIT, body=ScoringIn, out=JobOut, status=201)
    }

    def post(self, request, user, name):
        rows = Application.objects.filter(user=self.owner, name=name, trashed=None)
        app = rows.select_related("model__user", "model__environment_version").first()
        if app is None:
            raise Missing("application")
        return self.score(**scoring.of_application(app))


class ModelScore(ScoringView):
    kind = "model"
    calls = {"POST": Call("Score a dataset with a model", SUBMIT, body=ScoringIn, out=JobOut, status=201)}

    def post(self, request, user, name):
        model = Model.objects.filter(user=self.owner, name=name, trashed=None).select_related("user").first()
        if model is None:
            raise Missing("model")
        return self.score(model=model)
