"""`manage.py kubernetes check` reports what the cluster lacks to run jobs; `manage.py kubernetes manifests` prints the
manifests to apply. docs/kubernetes.md explains both.

`check` exits with 0 when jobs can run, 1 when something is missing.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from django.core.management.base import BaseCommand

from runners.kubernetes import check, from_settings, manifests, policies

MARKS = {"ok": "ok     ", "note": "note   ", "missing": "MISSING"}


class Command(BaseCommand):
    help = "Check the Kubernetes cluster that runs the jobs, or print the manifests it needs."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True)
        command = verbs.add_parser("check", help="report what the cluster lacks to run jobs")
        command.add_argument("--run", action="store_true", help="also run a small job, in each image of jobs")
        command = verbs.add_parser("manifests", help="print the objects that the namespace needs, as YAML")
        command.add_argument("--size", default=manifests.CLAIM_SIZE, help="size of the claim (default: %(default)s)")
        command.add_argument("--storage-class", default="", help="the claim's class; must support ReadWriteMany")
        command.add_argument(
            "--platform", action="append", default=[], metavar="CIDR",
            help="the addresses of a platform outside of the cluster, which may reach applications and be reached by "
            "runs; may be repeated",
        )  # fmt: skip
        command.add_argument(
            "--inside", action="append", default=[], metavar="CIDR",
            help="the cluster's own networks (pods, services, nodes), which runs may not reach; may be repeated "
            f"(default: {', '.join(policies.INSIDE)})",
        )  # fmt: skip

    def handle(self, *args, verb: str, **options):
        config = from_settings()
        if verb == "manifests":
            if not config.claim and not config.nfs:
                config = replace(config, claim="mlp")
            self.stdout.write(
                manifests.text(
                    config,
                    size=options["size"],
                    storage_class=options["storage_class"],
                    platform=options["platform"],
                    inside=options["inside"] or policies.INSIDE,
                ),
                ending="",
            )
            return
        missing = 0
        for line in check.run(config, probe=options["run"]):
            missing += line.kind == "missing"
            self.stdout.write(f"{MARKS[line.kind]}  {line.about:9}  {line.text}")
        self.stdout.write(f"{missing} missing" if missing else "jobs can run")
        if missing:
            sys.exit(1)
