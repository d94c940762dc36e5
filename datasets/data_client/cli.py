"""The command line: options, commands, exit codes. Started by the zip application's __main__."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

from . import __version__, account, scripts
from .download import download
from .errors import INTERRUPTED, LOCAL, MEANING, REFUSED, USAGE, Failure, Trouble
from .progress import filled, printable, size
from .service import Platform
from .upload import only_own, remove, upload
from .web import Web

CODES = "exit codes:\n" + "\n".join(f"  {code:3d}  {meaning}" for code, meaning in sorted(MEANING.items()))
EXAMPLES = """examples:
  data_client.pyz login --url http://platform:30001
  data_client.pyz upload photos --name photos
  data_client.pyz script put train.py
"""


class Parser(argparse.ArgumentParser):
    """Raises Failure with one line for a wrong option, where argparse would print its usage and exit."""

    def error(self, message: str):
        raise Failure(USAGE, f"{message} ({self.prog} --help)")


def _common(default) -> argparse.ArgumentParser:
    """Return the options that may come before or after the command; only those before it have a default."""
    common = argparse.ArgumentParser(add_help=False, argument_default=default)
    where = common.add_argument_group("connection (or the variables MLP_URL, MLP_USER, MLP_TOKEN)")
    where.add_argument("--url", help="address of the platform (default: that of the last login)")
    where.add_argument("--user", help="owner of the data (default: the user of the token)")
    where.add_argument("--token", help="API token (default: that of the saved login)")
    how = common.add_argument_group("output and retries")
    how.add_argument(
        "--patience",
        type=_seconds,
        metavar="S",
        help="keep retrying for S seconds without progress (default: 300, once the platform has answered)",
    )
    how.add_argument("--json", action="store_const", const=True, help="print the result as JSON")
    how.add_argument("--quiet", action="store_const", const=True, help="print only errors")
    return common


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    main = Parser(
        "data_client.pyz",
        description="Manage the datasets and scripts on the platform.",
        epilog=EXAMPLES + "\n" + CODES,
        parents=[_common(None)],
        formatter_class=raw,
    )
    main.add_argument("--version", action="version", version=__version__)
    commands = main.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    commands.required = True
    common = _common(argparse.SUPPRESS)

    def command(name: str, run, text: str, group=commands) -> argparse.ArgumentParser:
        subparser = group.add_parser(
            name, help=text, description=text, parents=[common], epilog=CODES, formatter_class=raw
        )
        subparser.set_defaults(run=run)
        return subparser

    subparser = command("upload", upload, "upload a folder or file as a dataset; resumes an interrupted upload")
    _dataset(subparser, "name of the dataset (letters a to z and dots)")
    subparser.add_argument("--title", default="", help="what pages call it: any text of at most 200 characters")
    subparser.add_argument("--replace", action="store_true", help="replace an existing dataset of that name")
    subparser.add_argument(
        "--part", type=_part, default=64, metavar="MIB", help="part size of large files (default: 64)"
    )
    subparser.add_argument("--follow", action="store_true", help="follow symbolic links (default: skip them)")
    subparser.add_argument(
        "--all", action="store_true", help="upload also .DS_Store, ._*, Thumbs.db, .git and the like"
    )
    _dataset(
        command("download", download, "download a dataset to a folder; resumes an interrupted download"),
        "name of the dataset; owner/name for one that is shared with you",
    )
    subparser = command("list", list_datasets, "list datasets")
    subparser.add_argument("--shared", action="store_true", help="list those that others share with you")
    subparser = command("delete", delete, "delete a dataset, and wait until it is deleted")
    subparser.add_argument("--name", required=True, help="name of the dataset")
    subparser.add_argument("--force", action="store_true", help="also delete a dataset that is being uploaded")
    command("login", login, "log in with username and password, and save the token")

    script = commands.add_parser("script", help="manage scripts: put, get, list, delete")
    group = script.add_subparsers(dest="script_command", metavar="COMMAND", parser_class=Parser)
    group.required = True
    subparser = command("put", scripts.put, "upload a script", group)
    subparser.add_argument("file", metavar="FILE")
    subparser.add_argument("name", metavar="NAME", nargs="?", help="path on the platform (default: name of the file)")
    subparser = command("get", scripts.get, "download a script", group)
    subparser.add_argument("name", metavar="NAME")
    subparser.add_argument("file", metavar="FILE", help="file or folder to write to; - for standard output")
    command("list", scripts.list_scripts, "list scripts", group)
    subparser = command("delete", scripts.delete, "delete a script", group)
    subparser.add_argument("name", metavar="NAME")
    return main


def _dataset(subparser: argparse.ArgumentParser, text: str) -> None:
    subparser.add_argument("dir", metavar="DIR")
    subparser.add_argument("--name", required=True, help=text)
    subparser.add_argument("--jobs", type=_jobs, default=4, help="number of parallel transfers (default: 4)")


def main(arguments=None) -> int:
    """Run one command and return its exit code. Errors are one line, never a stack trace."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options = parser().parse_args(arguments)
        options.insists = options.patience is not None
        options.patience = 300.0 if options.patience is None else options.patience
        _show(options, run(options))
        sys.stdout.flush()
        return 0
    except Failure as failure:
        code, line = failure.code, failure.line
    except Trouble as trouble:
        code, line = 5, trouble.line
    except KeyboardInterrupt:
        code, line = INTERRUPTED, "interrupted; run the same command again to resume"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return LOCAL
    except (OSError, MemoryError, RecursionError) as problem:
        code, line = LOCAL, str(problem) or type(problem).__name__
    if as_json:
        print(json.dumps({"error": line, "exit": code}))
    sys.stderr.write(f"error: {printable(line)}\n")
    return code


def run(options):
    """Connect, authenticate and run the command; return its result. Raises Failure, Trouble."""
    web = Web(account.url_of(options), options.patience, options.insists, lambda line: _say(options, line))
    platform = Platform(web)
    if options.run is not login:
        account.enter(platform, options)
    return options.run(platform, options, lambda line: _say(options, line))


def login(platform: Platform, options, say) -> dict:
    """Log in and save the token; return what --json prints."""
    account.saved_path()  # before anything is asked for
    user, token = account.ask(platform, options.user or os.environ.get("MLP_USER") or "")
    path = account.save(platform.web.url, user, token)
    return {"url": platform.web.url, "user": user, "saved": str(path)}


def list_datasets(platform: Platform, options, say) -> list:
    """Return the user's datasets, newest first, or those that are shared with the user."""
    return platform.shared() if options.shared else platform.datasets()


def delete(platform: Platform, options, say) -> dict:
    """Delete a dataset; return what --json prints."""
    only_own(options.name, "deleted")
    there = platform.dataset(options.name)
    if there is None:
        raise Failure(REFUSED, f"dataset {options.name} not found")
    if there["state"] == "creating" and not options.force:
        raise Failure(REFUSED, f"dataset {options.name} is being uploaded; use --force to delete it anyway")
    remove(platform, there)
    return {"dataset": options.name, "deleted": True}


def _show(options, result) -> None:
    """Print the result on standard output: as JSON, a table or one line."""
    if result is None:
        return
    if options.json:
        print(json.dumps(result, ensure_ascii=True))
    elif isinstance(result, list):
        if result and "state" in result[0]:
            rows = [(row["name"], row["state"], f"{row['progress']}%", size(row["size"])) for row in result]
        elif result and "right" in result[0]:
            rows = [(row["dataset"], row["right"], row["expires"] or "") for row in result]
        else:
            rows = [(row["path"], size(row["size"]), row["modified"]) for row in result]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
        for row in rows:
            _print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())  # noqa: B905 (3.10)
    elif not options.quiet:
        _print(_sentence(result))


def _sentence(result: dict) -> str:
    if "sent" in result:
        return filled("dataset {dataset} is ready: {files} files, {bytes} bytes ({sent} bytes sent)", result)
    if "received" in result:
        return filled("downloaded to {dir}: {files} files, {bytes} bytes ({received} bytes received)", result)
    if "saved" in result:
        return "logged in as {user} at {url}; token saved in {saved}".format(**result)
    return ", ".join("{}: {}".format(*pair) for pair in result.items() if pair[1] is not None)


def _print(line: str) -> None:
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, "backslashreplace").decode(encoding))


def _say(options, line: str) -> None:
    if not options.quiet:
        sys.stderr.write(printable(line) + "\n")


def _interrupt(_number, _frame):
    raise KeyboardInterrupt


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def _jobs(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 64:
        raise ValueError
    return value


def _part(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1024:
        raise ValueError
    return value


_seconds.__name__, _jobs.__name__, _part.__name__ = "number of seconds", "number from 1 to 64", "number from 1 to 1024"
