"""The REST calls of pipelines, one class for each path."""

from __future__ import annotations

from rest_framework.response import Response

from automation.models import Pipeline, PipelineRun, RunState
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import Missing
from kernel.request_keys import create_once
from kernel.rest import PAGE_LIMIT, StrictJSONParser
from kernel.titles import TitleIn, set_title
from kernel.views import Call, ContractView, query_int
from kernel.yaml_input import YamlParser

from . import lifecycle
from .serializers import PipelineChangeIn, PipelineIn, PipelineOut, PipelineRunIn, PipelineRunOut


class PipelineView(ContractView):
    kind = "pipeline"

    def pipeline(self, name: str) -> Pipeline:
        """Return the owner's pipeline. Raises Missing."""
        return lifecycle.find(self.owner, name)

    def shown(self, row: Pipeline) -> Response:
        """Return the answer that shows the pipeline."""
        row.shown_steps = dict(row.steps)
        return self.answer(row)

    def run(self, name: str, number: int) -> PipelineRun:
        """Return a run of the owner's pipeline. Raises Missing."""
        row = lifecycle.with_steps(self.pipeline(name).runs.filter(number=number)).first()
        if row is None:
            raise Missing("run")
        return row


class PipelineList(PipelineView):
    """A pipeline is a graph of jobs. The body may be YAML (application/yaml)."""

    parser_classes = (StrictJSONParser, YamlParser)
    calls = {
        "POST": Call("Create a pipeline", SUBMIT, body=PipelineIn, out=PipelineOut, status=201),
        "GET": Call("List the user's pipelines", READ, out=PipelineOut, many=True),
    }

    def post(self, request, user):
        given = {"params": {}, **self.body()}
        return self.shown(lifecycle.save_pipeline(user=self.owner, **given))

    def get(self, request, user):
        rows = Pipeline.objects.filter(user=self.owner, deleted=False).select_related("user")
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        pipelines = list(rows.order_by("-pk")[offset : offset + limit])
        for row in pipelines:
            row.shown_steps = dict(row.steps)
        return Response(PipelineOut(pipelines, many=True).data, headers={"X-Total-Count": str(rows.count())})


class PipelineDetail(PipelineView):
    parser_classes = (StrictJSONParser, YamlParser)
    calls = {
        "GET": Call("Get a pipeline", READ, out=PipelineOut),
        "PUT": Call(
            "Replace a pipeline: runs that have begun are not affected", SUBMIT, body=PipelineChangeIn, out=PipelineOut
        ),
        "DELETE": Call("Delete a pipeline with its runs: its jobs are cancelled, and stay", DESTROY, out=PipelineOut),
    }

    def get(self, request, user, name):
        return self.shown(self.pipeline(name))

    def put(self, request, user, name):
        given = {"params": {}, **self.body()}
        return self.shown(lifecycle.save_pipeline(user=self.owner, name=name, new=False, **given))

    def delete(self, request, user, name):
        row = self.pipeline(name)
        lifecycle.delete_pipeline(user=self.owner, name=name, by=self.by)
        return self.shown(row)


class PipelineEdit(PipelineView):
    calls = {"PUT": Call("Set the title", SUBMIT, body=TitleIn, out=PipelineOut)}

    def put(self, request, user, name):
        self.pipeline(name)
        set_title(Pipeline, user=self.owner, name=name, **self.body())
        return self.shown(self.pipeline(name))


class PipelineRuns(PipelineView):
    calls = {
        "GET": Call(
            "List the runs of a pipeline, newest first", READ, out=PipelineRunOut, many=True,
            states=tuple(RunState.values),
        ),
        "POST": Call("Begin a run", SUBMIT, once=True, body=PipelineRunIn, out=PipelineRunOut, status=201),
    }  # fmt: skip

    def get(self, request, user, name):
        rows = self.in_state(lifecycle.with_steps(self.pipeline(name).runs))
        limit = query_int(request, "limit", 50, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        runs = rows.order_by("-number")[offset : offset + limit]
        return Response(PipelineRunOut(runs, many=True).data, headers={"X-Total-Count": str(rows.count())})

    def post(self, request, user, name):
        pipeline = self.pipeline(name)

        def begin(within) -> PipelineRun:
            return lifecycle.begin_run(pipeline, by=self.by, within=within, **self.body())

        return self.answer(self.run(name, create_once(request, pipeline.runs.all(), begin).number))


class PipelineRunDetail(PipelineView):
    calls = {
        "GET": Call("Get a run with its steps", READ, out=PipelineRunOut),
        "DELETE": Call("Delete a run: its jobs are cancelled, and stay", DESTROY, out=PipelineRunOut),
    }

    def get(self, request, user, name, number):
        return self.answer(self.run(name, number))

    def delete(self, request, user, name, number):
        lifecycle.delete_run(self.run(name, number), by=self.by)
        return self.answer(self.run(name, number))


class PipelineRunCancel(PipelineView):
    calls = {"PUT": Call("Cancel a run and its jobs", SUBMIT, frees=True, out=PipelineRunOut)}

    def put(self, request, user, name, number):
        lifecycle.cancel_run(self.run(name, number), by=self.by)
        return self.answer(self.run(name, number))


class StepApprove(PipelineView):
    calls = {"PUT": Call("Approve a step that waits for it", SUBMIT, out=PipelineRunOut)}
    approve = True

    def put(self, request, user, name, number, step):
        lifecycle.decide(self.run(name, number), step, approve=self.approve, by=self.by)
        return self.answer(self.run(name, number))


class StepReject(StepApprove):
    calls = {
        "PUT": Call("Reject a step that waits for approval: the run fails", SUBMIT, frees=True, out=PipelineRunOut)
    }
    approve = False
