"""What the product's modules remember while their process runs. A test must not find what another has left there."""

from __future__ import annotations

import accounts.reconcile
import apps.reconcile
from accounts import delivery
from accounts.signin import oidc
from apps import places
from datasets.buckets import manifests
from datasets.buckets import waiting as waiting_for_buckets
from datasets.webdav import tree
from datasets.webdav.put import batch
from jobs import idle
from jobs.queue import waiting
from kernel import bus, near_cache, stored, streams
from mlp.visitors import schema
from models_app.registry import webhooks
from workspaces import launching, sizes

MEMORIES = (
    delivery.SENDER.busy,
    webhooks.SENDER.busy,
    oidc._clients,
    places._places,
    apps.reconcile._announced,
    waiting_for_buckets._began,
    tree._computing,
    batch._row_ids,
    idle._looked,
    waiting._announced,
    bus._logged,
    near_cache._kept,
    schema._documents,
    stored._sums,
    streams.STREAMS.running,
    launching._logins_looked,
    sizes._looked,
    sizes._counted,
    sizes._within,
)


def forget() -> None:
    for memory in MEMORIES:
        memory.clear()
    accounts.reconcile._tidied = 0.0
    manifests._text.cache_clear()
