"""`manage.py mlflow import URL`: brings the experiments, runs and registered models of an MLflow server here; `export`
those of a user to an MLflow server.

Exit code 0: all was taken and is there; 1: something could not be taken, as the report says; 2: the server does not
answer, or not to us. What was taken is kept in each case, and the next call continues.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError

from accounts.models import State, User
from models_app.transfer import exporting, importing
from models_app.transfer.options import Options
from models_app.transfer.report import Report
from models_app.transfer.server import Away, Server, ServerError


def _moment(text: str) -> int:
    try:
        return importing.since_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date or time such as 2026-05-01") from None


class Command(BaseCommand):
    help = (
        "Copies experiments, runs and registered models from an MLflow server (import) or to one (export). A call that "
        "was interrupted is continued by the next one; only what is new or has changed is copied."
    )

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["import", "export"])
        parser.add_argument("url", metavar="URL", help="the address of the MLflow server")
        parser.add_argument("--user", required=True, metavar="NAME", help="whose projects and models")
        parser.add_argument(
            "--experiments", action="append", default=[], metavar="GLOB",
            help="only the experiments or projects whose name matches, such as 'vision-*'; can be given several times",
        )  # fmt: skip
        parser.add_argument("--since", type=_moment, metavar="DATE", help="only runs that began then or later")
        parser.add_argument("--deleted", action="store_true", help="import deleted experiments and runs into the trash")
        parser.add_argument("--no-models", action="store_true", help="without the registry")
        parser.add_argument("--no-artifacts", action="store_true", help="without the files of runs")
        parser.add_argument("--again", action="store_true", help="copy runs again that have not changed since")
        parser.add_argument("--dry-run", action="store_true", help="count what would be copied, and change nothing")
        parser.add_argument("--source", default="", metavar="NAME",
                            help="remember the server by this name instead of its address")  # fmt: skip
        parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON, too")

    def handle(self, *args, what: str, url: str, user: str, **options):
        owner = User.objects.select_related("tenant").filter(username=user, state=State.ACTIVED).first()
        if owner is None:
            raise CommandError(f"there is no active user {user}", returncode=2)
        report, away = Report(self.stdout.write if options["verbosity"] else lambda line: None), ""
        wanted = Options(
            experiments=tuple(options["experiments"]), since=options["since"], deleted=options["deleted"],
            again=options["again"], dry=options["dry_run"],
            registry=not options["no_models"], artifacts=not options["no_artifacts"],
        )  # fmt: skip
        try:
            if what == "import":
                importing.run(owner, Server(url), wanted, report, options["source"])
            else:
                exporting.run(owner, Server(url), wanted, report)
        except importing.Busy as problem:
            raise CommandError(str(problem), returncode=2) from None
        except (Away, ServerError) as problem:
            away = str(problem)
        except KeyboardInterrupt:
            away = "interrupted"
        self._print(report, wanted.dry)
        if options["report"]:
            options["report"].write_text(json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n")
        if away:
            raise CommandError(f"{away}\nWhat was copied is kept; call the command again to continue.", returncode=2)
        if not report.complete:
            sys.exit(1)

    def _print(self, report: Report, dry: bool) -> None:
        lines = ["", "would be copied:" if dry else "copied:", *report.table()]
        if checked := report.checked():
            lines += ["", "compared:", *checked]
        if report.notes:
            lines += ["", *report.notes]
        if report.problems:
            lines += ["", f"not copied: {len(report.problems)}", *(f"  {problem}" for problem in report.problems)]
        self.stdout.write("\n".join(lines))
