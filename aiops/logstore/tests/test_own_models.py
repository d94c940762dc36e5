"""What both log stores do for tenants' own models: who judged a line, which anomalies count, the models' templates."""

from __future__ import annotations

import pytest

from aiops.judging import own_models
from aiops.logstore.base import OWN_TEMPLATES
from aiops.logstore.opensearch import FIRST, LOGS, TEMPLATES, OpenSearchStore
from aiops.models import Template
from aiops.training import training_data, unjudged

from .test_logstore import NOW, ids_matching, line

pytestmark = pytest.mark.django_db

RED, BLUE = 3, 31  # the number of the one begins the other's
ANOMALY = {"anomaly_level": "Anomaly", "masked_log": "x"}


def judged(store) -> None:
    """Store lines that different models took for anomalies: the platform's, those of two tenants, and a label."""
    models = (own_models.PLATFORM, RED, BLUE)
    judges = [own_models.stored(name, model) for model in models for name in ("drain", "opnilog")]
    store.append([line(number, cluster_id="local") for number in range(len(judges) + 1)])
    store.update_many([(f"id{number}", ANOMALY | {"inference_model": judge}) for number, judge in enumerate(judges)])


def trained_on(store, model: int) -> set[str]:
    body = training_data.query({"local": {"shop": ["web"]}}, NOW - 1, NOW + 100, model)
    return {row["_id"] for row in store.scan(body)}


def check_anomalies(store) -> None:
    assert trained_on(store, own_models.PLATFORM) == {"id6"}
    assert trained_on(store, RED) == {"id0", "id1", "id4", "id5", "id6"}
    assert trained_on(store, BLUE) == {"id0", "id1", "id2", "id3", "id6"}
    (row,) = [row for row in store.scan({}) if row["_id"] == "id3"]
    assert own_models.read(row) == ("opnilog", RED)


def test_an_own_model_learns_what_only_others_took_for_an_anomaly(store):
    judged(store)
    check_anomalies(store)


def test_the_same_in_an_index_whose_fields_opni_has_mapped(osmem):
    """There only some fields are declared; all others are texts with a keyword."""
    store = OpenSearchStore(osmem, refresh=True)
    store.client.indices.delete(index="*", ignore=404)
    kinds = {
        "keyword": ("log_type", "kubernetes_component", "cluster_id", "anomaly_level"),
        "date": ("time", "timestamp"),
        "text": ("log", "masked_log"),
    }
    declared = {name: {"type": kind} for kind, names in kinds.items() for name in names}
    body = {"mappings": {"properties": declared}, "aliases": {LOGS: {"is_write_index": True}}}
    store.client.indices.create(index=FIRST, body=body)
    judged(store)
    check_anomalies(store)


def test_the_lines_of_a_tenant_that_wait_for_its_model_are_found(store):
    names = [("local", name, "web") for name in ("anna", "bert", "carl")]
    store.append([line(n, cluster_id="local", namespace_name=triple[1]) for n, triple in enumerate(names)])
    store.append([line(9, cluster_id="other", namespace_name="anna")])
    store.update_many([("id1", ANOMALY)])
    query = unjudged.query(own_models.those_of(names, RED, {"anna": RED, "bert": RED}), NOW + 100)
    assert ids_matching(store, query["query"]) == {"id0"}


def template(model: int, number: int) -> dict:
    number += model * OWN_TEMPLATES
    return {"_id": str(number), "template_matched": f"of {model}", "template_cluster_id": number, "log": "x"}


def stored_templates(store) -> set[str]:
    if not isinstance(store, OpenSearchStore):
        return set(Template.objects.values_list("pk", flat=True))
    hits = store.client.search(index=TEMPLATES, body={"size": 100})["hits"]["hits"]
    return {hit["_id"] for hit in hits}


def test_the_templates_of_a_model_are_stored_and_go_with_it(store):
    """Their numbers are larger than Opni's mapping allows."""
    rows = [template(model, number) for model in (own_models.PLATFORM, RED, BLUE) for number in (1, OWN_TEMPLATES - 1)]
    store.put_templates(rows)
    assert stored_templates(store) == {row["_id"] for row in rows}
    store.forget_templates(RED)
    assert stored_templates(store) == {row["_id"] for row in rows if row["template_matched"] != f"of {RED}"}
    store.forget_templates(RED)
