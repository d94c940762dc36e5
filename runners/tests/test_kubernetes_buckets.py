"""Buckets that the pods of runs read through claims of the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from mlp import cluster_settings
from runners.base import Mount
from runners.kubernetes import KubernetesRunner

from .helpers import end_of, spec
from .test_kubernetes_check import complete_cluster, lines_of  # noqa: F401

CLAIMS = {"photos": "photos-claim", "more": "more-claim"}


def test_a_pod_reads_a_folder_of_the_claim(cluster, configured, tmp_path):
    bucket = tmp_path / "bucket"
    (bucket / "2026" / "june").mkdir(parents=True)
    (bucket / "2026" / "june" / "a.txt").write_text("from the bucket")
    cluster.node.claims["photos-claim"] = bucket
    runner = KubernetesRunner(configured(bucket_claims=CLAIMS))
    source = Path(cluster_settings.bucket_folders(CLAIMS)["photos"], "2026/june")
    mounts = (Mount(source, "/datasets/photos"), Mount(source.parent, "/datasets/all"))
    given = spec(tmp_path, "import sys; print(open(sys.argv[1]).read())", mounts=mounts, owner=7)
    runner.start(replace(given, command=[*given.command, "/datasets/photos/a.txt"]))
    assert end_of(runner).succeeded
    assert Path(given.log).read_text() == "from the bucket\n"
    [pod] = cluster.store.list("pods")
    volumes = [each for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each]
    claims = [each["persistentVolumeClaim"] for each in volumes]
    assert claims == [{"claimName": "mlp"}, {"claimName": "photos-claim", "readOnly": True}]
    [container] = pod["spec"]["containers"]
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounted["/datasets/photos"] == {
        "name": volumes[1]["name"], "mountPath": "/datasets/photos", "readOnly": True, "subPath": "2026/june"
    }  # fmt: skip


def test_a_pod_that_reads_no_bucket_has_no_claim_of_one(cluster, configured, tmp_path):
    runner = KubernetesRunner(configured(bucket_claims=CLAIMS))
    runner.start(spec(tmp_path, "pass"))
    assert end_of(runner).succeeded
    [pod] = cluster.store.list("pods")
    assert "photos-claim" not in str(pod)


def test_the_check_says_which_claims_of_buckets_are_there(complete_cluster, configured):  # noqa: F811
    ready = {"metadata": {"name": "photos-claim"}, "spec": {}, "status": {"phase": "Bound"}}
    complete_cluster.store.create("persistentvolumeclaims", ready)
    lines = lines_of(configured(bucket_claims=CLAIMS))
    assert "buckets: photos: PersistentVolumeClaim photos-claim is bound" in lines["ok"]
    assert "buckets: more: PersistentVolumeClaim more-claim is not found" in lines["missing"]


@pytest.mark.parametrize("value", ["photos", "photos=No_Claim", "photos="])
def test_a_wrong_claim_is_refused_at_the_start(monkeypatch, value):
    monkeypatch.setenv("MLP_K8S_BUCKET_CLAIMS", value)
    with pytest.raises(ImproperlyConfigured, match="MLP_K8S_BUCKET_CLAIMS must be like"):
        cluster_settings.bucket_claims()
