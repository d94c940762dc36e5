"""The checks of a REST answer that schemathesis lacks, because the contract answers every refusal with 403.

`ensure_resource_availability`, `unsupported_method` and `positive_data_acceptance` of schemathesis tell the cases by
404, 405 and 400. Here the refusal's text tells them.
"""

from __future__ import annotations

import re

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.generation.meta import CoverageScenario, coverage_scenario

STATUSES = {200, 201, 403, 503}
# What no answer may show: the inside of the platform.
INSIDE = re.compile(rb'Traceback \(most|File ".*", line|psycopg|django\.|/site-packages/', re.IGNORECASE)
# Refusals of a value, which a request that follows the schema must not get.
OF_A_VALUE = re.compile(
    r"must be (a|an|one of|at|at least|\d|JSON|true|within)\b|must have|must match|must not|unknown "
    r"(field|parameter)|not valid JSON|required|may not be|Ensure|Not a valid|blank|at most|\d to \d"
)
# Values that the schema cannot describe: a word list of passwords, the caller's own names, patterns of object keys.
BEYOND_THE_SCHEMA = re.compile(
    r"^password: |^user: must be the user in the path|^name: must be the job in the path|^namespace_name: must be your "
    r"own|less than what is in use|^env: |^src: must be|^values: names must|^args|^release|requires a service token|"
    r"^log: |^expires: must be|^goals: the name of |^time: must be|^q: |^(tags|add): (a tag|the value of) "
)


class OutsideTheContract(Failure):
    __slots__ = ()


def _fail(case, title: str, message: str) -> None:
    raise OutsideTheContract(operation=case.operation.label, title=title, message=message)


def problem_of(status: int, content: bytes, *, head: bool = False) -> str:
    """Return what is wrong with an answer of /api/v1, or ""."""
    if status not in STATUSES:
        return f"status {status}"
    if status == 503:
        return "a fault of the platform"
    if status == 403 and not head and not re.fullmatch(rb'\s*\{"msg": ?"([^"\\]|\\.)+"\}\s*', content):
        return "a refusal that is not {msg}"
    return "the inside of the platform shows" if INSIDE.search(content) and status == 403 else ""


@schemathesis.check
def within_the_contract(ctx, response, case) -> None:
    """Check the statuses and bodies also where schemathesis does not: methods and requests that the schema lacks."""
    problem = problem_of(response.status_code, response.content, head=response.request.method == "HEAD")
    if problem:
        _fail(case, problem, response.content[:500].decode(errors="replace"))


@schemathesis.check
def valid_data_acceptance(ctx, response, case) -> None:
    """Check that a request that follows the schema is not refused because of its values."""
    meta = case.meta
    if response.status_code != 403 or meta is None or not meta.generation.mode.is_positive:
        return
    if coverage_scenario(case) == CoverageScenario.UNSPECIFIED_HTTP_METHOD:
        return
    for problem in response.json().get("msg", "").split("; "):
        if OF_A_VALUE.search(problem) and not BEYOND_THE_SCHEMA.search(problem):
            _fail(case, "a valid request is refused for a value", problem)


@schemathesis.check
def method_refusal(ctx, response, case) -> None:
    """Check that a method that an address does not have is refused."""
    if coverage_scenario(case) == CoverageScenario.UNSPECIFIED_HTTP_METHOD and response.status_code != 403:
        _fail(case, f"{response.request.method} is not refused", f"status {response.status_code}")
