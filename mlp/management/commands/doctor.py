"""`manage.py doctor`: checks the machine, the servers and the platform's state, each finding with its remedy.

Exit code 0: nothing to do; 1: warnings; 2: problems. docs/doctor.md lists the checks.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management.base import BaseCommand

from kernel import broker, bus
from operations.checkup import findings, isolation, machine, secrecy, state
from operations.checkup.findings import Check
from supervision import health

DATABASE, BOTH, NATS = frozenset({"database"}), frozenset({"database", "nats"}), frozenset({"nats"})
CHECKS = (
    Check("platform", state.parts),
    Check("processes", state.leftovers),
    Check("disk", machine.disk),
    Check("memory", machine.memory),
    Check("ports", machine.free_ports),
    Check("versions", machine.versions),
    Check("clocks", machine.clock_of_files),
    Check("clocks", machine.clock_of_rounds),
    Check("clocks", machine.clock_of_database, DATABASE),
    Check("clocks", machine.clock_of_nats, NATS),
    Check("secrets", secrecy.permissions),
    Check("addresses", secrecy.addresses),
    Check("certificate", secrecy.certificates),
    Check("isolation", isolation.isolation),
    Check("loopback", isolation.loopback),
    Check("migrations", state.migrations, DATABASE),
    Check("database", state.sessions, DATABASE),
    Check("books", state.resources, DATABASE),
    Check("tenants", state.capacities, DATABASE),
    Check("requests", state.requests),
    Check("GPU types", state.gpu_types),
    Check("runs", state.runs, DATABASE),
    Check("stream", state.stream, BOTH),
    Check("tasks", state.tasks, frozenset({"valkey"})),
    Check("logs", state.logs, frozenset({"valkey"})),
    Check("backups", state.backups),
)
THOROUGH = (Check("files", state.files, DATABASE),)
SERVERS = {"database": health.check_database, "nats": bus.check, "valkey": lambda: broker.broker().client.ping()}
MARKS = {"ok": "ok      ", "note": "note    ", "warning": "WARNING ", "problem": "PROBLEM "}


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep what is no error out of the log meanwhile."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class Command(BaseCommand):
    help = "Check the machine, the servers and the platform's state, and say what to do."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        parser.add_argument("--thorough", action="store_true", help="also compare all datasets' rows and files")

    def handle(self, *args, thorough: bool = False, **options):
        with _quiet("kernel"):  # that a server is missing is a finding
            answers = health.ask(SERVERS)
            missing = [name for name, state in answers.items() if state != "ok"]
            reported = list(findings.run(CHECKS + (THOROUGH if thorough else ()), missing))
        if missing:
            told = f"what needs {', '.join(missing)} was not asked: {answers[missing[0]]}"
            reported.append(findings.Finding("servers", "note", told, "start the platform for more checks"))
        level = findings.worst(reported)
        if options["json"]:
            data = {"level": level, "findings": [finding.as_data() for finding in reported]}
            self.stdout.write(json.dumps(data, indent=1).replace("{root}", str(settings.MLP_ROOT)))
        else:
            self._print(reported)
        sys.exit(findings.EXIT[level])

    def _print(self, shown: list[findings.Finding]) -> None:
        root = str(settings.MLP_ROOT)
        for finding in shown:
            self.stdout.write(f"{MARKS[finding.level]} {finding.about:12}  {finding.what}")
            if finding.remedy:
                self.stdout.write(f"{'':23}  -> {finding.remedy.replace('{root}', root)}")
        counts = {level: sum(finding.level == level for finding in shown) for level in ("problem", "warning")}
        self.stdout.write(f"problems: {counts['problem']}, warnings: {counts['warning']}")
