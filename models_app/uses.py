"""The models made from jobs that read a dataset (datasets.uses)."""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.db.models import Q

from datasets import sources
from datasets.models import Dataset
from datasets.uses import Use

from .models import Model


def newest(dataset: Dataset, most: int) -> list[Use]:
    """Return the newest models whose job read the dataset."""
    own, shared = sources.spellings(dataset)
    of_owner = reduce(or_, [Q(lineage__datasets__contains=[{"name": name}]) for name in own])
    of_others = reduce(or_, [Q(lineage__datasets__contains=[{"name": name}]) for name in shared])
    wanted = Q(of_owner, user=dataset.user_id) | of_others
    rows = Model.objects.filter(wanted, trashed=None, created__gte=dataset.created).select_related("user")
    return [
        Use("model", row.user.username, row.name, row.shown_state, row.shown_state_word, row.created)
        for row in rows.order_by("-pk")[:most]
    ]
