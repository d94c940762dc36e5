"""The graph of a pipeline: checked when it is stored, filled in when a run begins, laid out for the page.

steps:
  prepare: {entry: prepare.py}
  train: {entry: train.py, args: ["--epochs", "${epochs}"], inputs: {DATA: prepare/data}}
  good: {needs: [train], when: {train: accuracy > 0.9}, approve: "Is the model good?"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from jobs.artifacts.inputs import INPUT_NAME, MAX_INPUT, MAX_INPUTS
from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE
from tracking.runs import filters

MAX_STEPS = 200
MAX_PARAMS = 50
MAX_TEXT = 1000
STEP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
PARAM = re.compile(r"\$\$\{|\$\{([^}]*)\}")  # `$${` is `${` itself


def need_params(given: object) -> dict:
    """Return the parameters with their defaults. Raises Refused."""
    if not isinstance(given, dict) or len(given) > MAX_PARAMS:
        raise Refused("must be an object of at most %(most)s parameters", field="params", most=MAX_PARAMS)
    for name, value in given.items():
        if not PARAM_NAME.fullmatch(name):
            raise Refused("a parameter's name must match %(pattern)s", field="params", pattern=PARAM_NAME.pattern)
        _need_value(name, value)
    return given


def _need_value(name: str, value: object) -> None:
    if isinstance(value, str):
        if len(value) > MAX_TEXT or UNSTORABLE.search(value):
            raise Refused("must be valid text of at most %(most)s characters", field=f"params.{name}", most=MAX_TEXT)
    elif not isinstance(value, int | float | bool) or not abs(value) <= 1e300:  # NaN is not, either
        raise Refused("must be a text, a finite number, true or false", field=f"params.{name}")


def with_params(defaults: Mapping, given: object) -> dict:
    """Return the parameters of a run. Raises Refused for one that the pipeline does not have."""
    for name, value in need_params(given).items():
        if name not in defaults:
            raise Refused("there is no parameter %(name)s", field="params", name=name)
        _need_value(name, value)
    return {**defaults, **given}


def need_steps(steps: Mapping[str, dict], params: Mapping) -> dict[str, dict]:
    """Return the steps with what they need made complete, each after those that it needs. Raises Refused."""
    if not 1 <= len(steps) <= MAX_STEPS:
        raise Refused("must be an object of 1 to %(most)s steps", field="steps", most=MAX_STEPS)
    read = {name: _step(name, dict(step), steps, params) for name, step in steps.items()}
    try:
        order = list(TopologicalSorter({name: step["needs"] for name, step in read.items()}).static_order())
    except CycleError as problem:
        raise Refused("the steps are a circle: %(way)s", field="steps", way=" > ".join(reversed(problem.args[1])))
    depth = depths(read)
    return {name: read[name] for name in sorted(order, key=lambda name: (depth[name], list(read).index(name)))}


def _step(name: str, step: dict, steps: Mapping, params: Mapping) -> dict:
    field = f"steps.{name}"
    if not STEP_NAME.fullmatch(name):
        raise Refused("a step's name must match %(pattern)s", field="steps", pattern=STEP_NAME.pattern)
    if ("approve" in step) == ("job" in step):
        raise Refused("must have either an entry or approve", field=field)
    sources = {source.partition("/")[0]: where for where, source in step.get("inputs", {}).items()}
    needs = list(dict.fromkeys([*step.get("needs", []), *sources, *step.get("when", {})]))
    for other in needs:
        if other not in steps:
            place = "when" if other in step.get("when", {}) else "needs"
            place = f"inputs.{sources[other]}" if other in sources else place
            raise Refused("there is no step %(name)s", field=f"{field}.{place}", name=other)
    for other in [*sources, *step.get("when", {})]:
        if "approve" in steps[other]:
            raise Refused("%(name)s is an approval, which has no output", field=field, name=other)
    for other, text in step.get("when", {}).items():
        try:
            filters.parse(text)
        except filters.FilterError as problem:
            raise Refused(problem.problem, field=f"{field}.when.{other}")
    for text in _texts(step):
        for match in PARAM.finditer(text):
            if match[1] is not None and match[1] not in params:
                raise Refused(
                    "there is no parameter %(name)s; write $${ for ${ itself", field=field, name=match[1][:50]
                )
    return {**step, "needs": needs}


def _texts(step: dict) -> Iterable[str]:
    job = step.get("job", {})
    return [*job.get("args", []), *job.get("env", {}).values()]


def filled(step: dict, params: Mapping) -> dict:
    """Return the step with the values of the parameters in its arguments and environment variables."""
    if "job" not in step:
        return step

    def fill(text: str) -> str:
        return PARAM.sub(lambda match: "${" if match[1] is None else _text(params[match[1]]), text)

    job = dict(step["job"])
    job |= {"args": [fill(text) for text in job["args"]]} if "args" in job else {}
    job |= {"env": {name: fill(text) for name, text in job["env"].items()}} if "env" in job else {}
    return {**step, "job": job}


def escaped(text: str) -> str:
    """Return the text such that `filled` returns it as it is given here."""
    return text.replace("${", "$${")


def _text(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def need_inputs(inputs: object, field: str = "inputs") -> dict[str, str]:
    """Return inputs by name, `step` or `step/path` each. Raises Refused."""
    if not isinstance(inputs, dict) or len(inputs) > MAX_INPUTS:
        raise Refused("must be an object of at most %(most)s inputs", field=field, most=MAX_INPUTS)
    for name, source in inputs.items():
        if not INPUT_NAME.fullmatch(name):
            raise Refused("an input is named by capital letters, digits and _", field=f"{field}.{name[:50]}")
        if not isinstance(source, str) or not 1 <= len(source) <= MAX_INPUT or "\x00" in source:
            raise Refused("must be a step and a path, as in prepare/data", field=f"{field}.{name}")
    return inputs


# --- the picture ------------------------------------------------------------------------------------------------------
WIDE, HIGH, GAP_X, GAP_Y, EDGE = 150, 46, 46, 16, 8


def depths(steps: Mapping[str, dict]) -> dict[str, int]:
    """Return how many steps are before each, on the longest way."""
    depth_of: dict[str, int] = {}
    for name in TopologicalSorter({name: step["needs"] for name, step in steps.items()}).static_order():
        depth_of[name] = 1 + max((depth_of[other] for other in steps[name]["needs"]), default=-1)
    return depth_of


def drawn(steps: Mapping[str, dict]) -> dict:
    """Return {width, height, boxes: {name: (x, y)}, lines: [path]} of a drawing from the left to the right, in px."""
    depth, columns, boxes = depths(steps), {}, {}
    for name in steps:
        column = columns.setdefault(depth[name], [])
        boxes[name] = (EDGE + depth[name] * (WIDE + GAP_X), EDGE + len(column) * (HIGH + GAP_Y))
        column.append(name)
    lines = []
    for name, step in steps.items():
        x, y = boxes[name]
        for other in step["needs"]:
            left, top = boxes[other][0] + WIDE, boxes[other][1] + HIGH / 2
            middle = (left + x) / 2
            lines.append(f"M{left:g} {top:g}C{middle:g} {top:g} {middle:g} {y + HIGH / 2:g} {x:g} {y + HIGH / 2:g}")
    tallest = max(len(column) for column in columns.values())
    width = 2 * EDGE + len(columns) * (WIDE + GAP_X) - GAP_X
    return {"width": width, "height": 2 * EDGE + tallest * (HIGH + GAP_Y) - GAP_Y, "boxes": boxes, "lines": lines}
