"""Two or more versions of a registered model side by side: what they are, signatures, tags, and their runs' metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from kernel import units
from models_app.models import ModelVersion, RegisteredModel
from tracking.compare import rows
from tracking.compare.rows import Cell, Row

from . import reading

MAX = 10  # versions side by side


@dataclass
class Comparison:
    """The rows of the page's table. `jobs` are the runs of the versions, as far as they are known."""

    versions: list[ModelVersion]
    details: list[Row] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    outputs: list[Row] = field(default_factory=list)
    tags: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)
    jobs: list = field(default_factory=list)


def chosen(registered: RegisteredModel, numbers: list[str]) -> list[ModelVersion]:
    """Return the versions of these numbers, in that order; without two numbers the two newest."""
    asked = [int(text) for text in dict.fromkeys(numbers) if text.isascii() and text.isdigit() and len(text) < 10]
    versions = reading.versions().filter(registered=registered)
    if len(asked) < 2:
        return sorted(versions.order_by("-number")[:2], key=lambda version: version.number)
    by_number = {version.number: version for version in versions.filter(number__in=asked[:MAX])}
    return [by_number[number] for number in asked[:MAX] if number in by_number]


def compare(versions: list[ModelVersion]) -> Comparison:
    """Return what the page shows of these versions."""
    result = Comparison(versions, details=_details(versions))
    for side in ("inputs", "outputs"):
        setattr(result, side, _by_name([_tensors(version, side) for version in versions]))
    result.tags = _by_name([version.tags for version in versions])
    result.jobs = list({version.job_id: version.job for version in versions if version.job is not None}.values())
    result.metrics = _metrics(versions)
    return result


def _metrics(versions: list[ModelVersion]) -> list[Row]:
    """Return the rows of the metrics; a version whose run is not known has empty cells."""
    jobs = [version.job for version in versions if version.job is not None]
    if not jobs:
        return []
    metrics = rows.table_of(jobs, rows.params_of(jobs), rows.summaries_of(jobs), False).metrics
    for row in metrics:
        cells = iter(row.cells)
        row.cells = [Cell() if version.job is None else next(cells) for version in versions]
        row.differs = row.differs or len(jobs) < len(versions)
    return metrics


def _details(versions: list[ModelVersion]) -> list[Row]:
    texts = {
        _("State"): [str(version.status.label) for version in versions],
        _("Aliases"): [", ".join(sorted(f"@{alias.name}" for alias in version.aliases.all())) for version in versions],
        _("Stage"): [str(version.get_stage_display()) for version in versions],
        _("Source"): [version.source for version in versions],
        _("Run"): [version.job.name if version.job else "" for version in versions],
        _("Format"): [version.model.format if version.model else "" for version in versions],
        _("Size"): [units.size(version.model.size) if version.model else "" for version in versions],
        _("Description"): [version.description for version in versions],
    }
    return [_row(name, cells) for name, cells in texts.items() if any(cells)]


def _tensors(version: ModelVersion, side: str) -> dict[str, str]:
    """Return type and shape of each input or output, by its name."""
    declared = version.model.signature.get(side) if version.model and isinstance(version.model.signature, dict) else []
    tensors = [entry for entry in declared if isinstance(entry, dict)] if isinstance(declared, list) else []
    return {
        str(tensor.get("name", "")): f"{tensor.get('datatype', '')} {tensor.get('shape', '')}" for tensor in tensors
    }


def _by_name(given: list[dict[str, str]]) -> list[Row]:
    names = list(dict.fromkeys(name for side in given for name in side))[: rows.MAX_ROWS]
    return [_row(name, [side[name] or "✓" if name in side else "" for side in given]) for name in names]


def _row(name: str, texts: list[str]) -> Row:
    return Row(name, [Cell(text) for text in texts], len(set(texts)) > 1)
