"""REST for those who own the logs: feedback on lines, templates, watched workloads."""

from __future__ import annotations

from rest_framework.response import Response

from aiops import logstore
from aiops.judging import feedback, log_search, watching
from kernel.effects import DESTROY, READ
from kernel.locking import Missing, get_or_missing
from kernel.pages import number_in
from kernel.views import Call, ContractView, query_int

from .alerts_api import FIRST, ID, MADE
from .logs_api import FILTERS
from .owners_serializers import FeedbackIn, FeedbackOut, TemplateOut, WatchedOut, WatchIn

OF_A_TEMPLATE = 2000  # its newest lines, whose texts get the feedback on a template
MAX_TEMPLATES = 1000


def find_line(user, id: str) -> dict:
    """Return the line of that id if the user may see it. Raises Missing, Fault."""
    allowed = log_search.body(user)["query"]
    wanted = {"query": {"bool": {"filter": [allowed, {"term": {"_id": id}}]}}}
    rows, _more = logstore.get().search(wanted, 1) if id and "\x00" not in id else ([], None)
    if not rows:
        raise Missing("log line")
    return rows[0]


def lines_to_label(user, id: str, template: str) -> list[dict]:
    """Return the line, or the newest lines of the template, that the user may see. Raises as `find_line`, Refused."""
    if not template:
        return [find_line(user, id)]
    return logstore.get().search(log_search.body(user, template=template), OF_A_TEMPLATE)[0]


class FeedbackList(ContractView):
    """An administrator's applies to all lines and to trainings, a user's to the lines of the own namespace."""

    kind = "feedback"
    calls = {
        "GET": Call("List feedback, newest first", READ, out=FeedbackOut, many=True),
        "POST": Call("Label a line, or the lines of a template", body=FeedbackIn, out=FeedbackOut, many=True,
                     status=201),
    }  # fmt: skip

    def get(self, request):
        return self.page(feedback.visible(request.user))

    def post(self, request):
        given = self.body()
        documents = lines_to_label(request.user, given.get("id", ""), str(given.get("template", "")))
        rows = feedback.record(documents, given["level"], request.user)
        return Response(FeedbackOut(rows, many=True).data, status=201, headers={"X-Total-Count": str(len(rows))})


class Templates(ContractView):
    kind = "template"
    calls = {
        "GET": Call("List templates of judged lines, the most frequent first", READ, out=TemplateOut, many=True,
                    query=FILTERS),
    }  # fmt: skip

    def get(self, request):
        given = {name: request.query_params[name] for name, _, _ in FILTERS if request.query_params.get(name)}
        limit = query_int(request, "limit", 100, 1, MAX_TEMPLATES)
        offset = query_int(request, "offset", 0, 0)
        rows = logstore.get().templates(log_search.body(request.user, field="template_matched", **given),
                                        MAX_TEMPLATES)  # fmt: skip
        page = [_template(row) for row in rows[offset : offset + limit]]
        return Response(TemplateOut(page, many=True).data, headers={"X-Total-Count": str(len(rows))})


def _template(row: dict) -> dict:
    newest = row["newest"]
    return {
        **row,
        "template_matched": newest.get("template_matched", ""),
        "log": newest["log"],
        "workloads": ["/".join(names) for names in row["workloads"]],
    }


class Watched(ContractView):
    kind = "watched workload"
    calls = {
        "GET": Call("List workloads that are watched by their owners", READ, out=WatchedOut, many=True),
        "POST": Call("Watch a workload", body=WatchIn, out=WatchedOut, status=201),
    }

    def get(self, request):
        return self.page(watching.visible(request.user))

    def post(self, request):
        return self.answer(watching.watch(user=request.user, **self.body()))


class WatchedDetail(ContractView):
    kind = "watched workload"
    segments = {"id": ID}
    calls = {
        "GET": Call("Get a watched workload", READ, out=WatchedOut, after={"getWatched": FIRST}),
        "DELETE": Call("Watch a workload no longer", DESTROY, after={"postWatched": MADE}),
    }

    def get(self, request, id):
        return self.answer(get_or_missing(watching.visible(request.user), number_in(id), self.kind))

    def delete(self, request, id):
        watching.unwatch(request.user, number_in(id))
        return self.answer()
