"""Registered models, versions and aliases as MLflow's messages have them. A version's number is a text there."""

from __future__ import annotations

from datetime import datetime

from models_app.models import ModelVersion, RegisteredModel
from models_app.registry import reading


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def pairs(tags: dict) -> list[dict]:
    """Return tags as a list of key and value."""
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]


def version(row: ModelVersion, status: bool = True) -> dict:
    """Return a version."""
    fields = {
        "name": row.registered.name,
        "version": str(row.number),
        "creation_timestamp": milliseconds(row.created),
        "last_updated_timestamp": milliseconds(row.updated),
        "user_id": row.registered.user.username,
        "current_stage": row.stage,
        "source": row.source,
        "run_id": row.run_id,
        "status": row.status,
        "status_message": str(row.status_message),
        "run_link": row.run_link,
        "tags": pairs(row.tags),
        "aliases": sorted(alias.name for alias in row.aliases.all()),
        "description": row.description,
    }
    if row.logged_model:
        fields["model_id"] = row.logged_model
    return fields


def registered(row: RegisteredModel, latest: list[ModelVersion]) -> dict:
    """Return a registered model with the newest version of each stage."""
    fields = {
        "name": row.name,
        "creation_timestamp": milliseconds(row.created),
        "last_updated_timestamp": milliseconds(row.updated),
        "user_id": row.user.username,
        "latest_versions": [version(newest) for newest in latest],
        "tags": pairs(row.tags),
        "aliases": [{"alias": alias.name, "version": str(alias.version.number)} for alias in row.aliases.all()],
    }
    if row.description:
        fields["description"] = row.description
    return fields


def all_registered(rows: list[RegisteredModel]) -> list[dict]:
    """Return several registered models, with the queries of one."""
    latest = reading.latest_of(rows)
    return [registered(row, latest[row.pk]) for row in rows]
