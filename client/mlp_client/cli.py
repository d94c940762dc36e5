"""The command line: options, verbs, exit codes. Started by the zip application's __main__."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

from . import (
    __version__,
    account,
    attach,
    checkouts,
    completion,
    datasets,
    exports,
    files,
    models,
    objects,
    pipelines,
    profiles,
    rollouts,
    running,
    schedules,
    shown,
    ssh,
    sweeps,
    top,
    workspaces,
)
from .connection import Connection, Rest
from .texts import tr
from .transfer.errors import INTERRUPTED, LOCAL, UNREACHABLE, USAGE, Failure, Trouble

VERBS = (
    account, running, objects, top, attach, files, datasets, exports, checkouts, sweeps, pipelines, schedules,
    models, rollouts, workspaces, ssh, completion,
)  # fmt: skip


WORDS = ("command", "second", "third")  # where the words of a verb are kept, as in `mlp workspace guest add`


class Parser(argparse.ArgumentParser):
    """Raises Failure with one line for a wrong option, where argparse would print its usage and exit."""

    def error(self, message: str):
        raise Failure(USAGE, f"{message} ({self.prog} --help)")


def codes() -> str:
    """Return the text of the exit codes."""
    meaning = {
        0: tr("success"),
        1: tr("local error: a file cannot be read or written"),
        2: tr("invalid options or arguments"),
        3: tr("not logged in, or invalid token"),
        4: tr("refused by the platform"),
        5: tr("the platform was unreachable or failing for longer than --patience"),
        6: tr("checksum mismatch, also after retries"),
        130: tr("interrupted"),
    }
    return tr("exit codes:") + "\n" + "\n".join(f"  {code:3d}  {text}" for code, text in meaning.items())


def _common(default) -> argparse.ArgumentParser:
    """Return the options that may come before or after the verb; only those before it have a default."""
    common = argparse.ArgumentParser(add_help=False, argument_default=default)
    group = common.add_argument_group(tr("connection (or MLP_URL, MLP_TOKEN, MLP_PROFILE, MLP_CACERT)"))
    group.add_argument("--profile", metavar="NAME", help=tr("saved login to use (default: the last one)"))
    group.add_argument("--url", help=tr("address of the platform"))
    group.add_argument("--token", help=tr("token; other users of the machine can see it while the command runs"))
    group.add_argument("--user", help=tr("owner of the objects (default: the user of the token)"))
    group.add_argument("--cacert", metavar="FILE", help=tr("certificates to trust instead of the system's"))
    group = common.add_argument_group(tr("output and retries"))
    group.add_argument("--patience", type=_seconds, metavar="S", help=tr("retry for S seconds (default: 300)"))
    group.add_argument("--json", action="store_const", const=True, help=tr("print the result as JSON"))
    group.add_argument("--quiet", action="store_const", const=True, help=tr("print only results and errors"))
    return common


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    text = tr("Run jobs on the platform, follow them, and fetch what they write.")
    main = Parser("mlp", description=text, epilog=codes(), parents=[_common(None)], formatter_class=raw)
    main.add_argument("--version", action="version", version=f"mlp-client {__version__}")
    verbs = main.add_subparsers(dest="command", metavar="VERB", parser_class=Parser)
    verbs.required = True
    for module in VERBS:
        module.declare(Verbs(verbs, _common(argparse.SUPPRESS)))
    return main


class Verbs:
    """Where a module declares its verbs; `group` is one of several words, such as `mlp sweep run`."""

    def __init__(self, verbs, common: argparse.ArgumentParser):
        self.verbs, self.common = verbs, common

    def __call__(self, name: str, run, help_text: str, connects: bool = True, **options) -> argparse.ArgumentParser:
        """Add a verb and return its parser."""
        texts = {"help": help_text, "description": help_text, "epilog": codes()}
        raw = argparse.RawDescriptionHelpFormatter
        subparser = self.verbs.add_parser(name, parents=[self.common], formatter_class=raw, **texts, **options)
        subparser.set_defaults(run=run, connects=connects, takes_args=False)
        return subparser

    def group(self, name: str, help_text: str, dest: str = "second") -> Verbs:
        """Add a word and return where the next ones are declared; `dest` is where the chosen one is kept."""
        subparser = self.verbs.add_parser(name, help=help_text, description=help_text)
        verbs = subparser.add_subparsers(dest=dest, metavar="VERB", parser_class=Parser)
        verbs.required = True
        return Verbs(verbs, self.common)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def main(arguments=None) -> int:
    """Run one command and return its exit code. Errors are one line, never a stack trace."""
    arguments = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        cut = arguments.index("--") if "--" in arguments else len(arguments)
        words = parser()
        options = words.parse_args(arguments[:cut])
        options.parser = words
        options.args = arguments[cut + 1 :]
        if options.args and not options.takes_args:
            verb = " ".join(filter(None, (getattr(options, word, "") for word in WORDS)))
            raise Failure(USAGE, tr("{verb} takes no arguments after --", verb=verb))
        result = run(options)
        shown.result(options, result)
        sys.stdout.flush()
        return getattr(options, "code", 0)
    except Failure as failure:
        code, line = failure.code, failure.line
    except Trouble as trouble:
        code, line = UNREACHABLE, trouble.line
    except KeyboardInterrupt:
        code, line = INTERRUPTED, tr("interrupted")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return LOCAL
    except (OSError, MemoryError, RecursionError) as problem:
        code, line = LOCAL, str(problem) or type(problem).__name__
    if "--json" in arguments[: arguments.index("--") if "--" in arguments else len(arguments)]:
        print(json.dumps({"error": line, "exit": code}))
    shown.note(tr("error: {line}", line=line))
    return code


def run(options: argparse.Namespace):
    """Connect, run the verb and return its result. Raises Failure, Trouble."""

    def say(line: str) -> None:
        if not options.quiet:
            shown.note(line)

    if not options.connects:
        return options.run(None, options, say)
    options.where = profiles.where(options)
    rest = Rest(Connection(options.where.url, options.where.cacert, options.patience, say))
    rest.authenticate(options.where.token, options.where.user)
    return options.run(rest, options, say)


def _interrupt(_number, _frame):
    raise KeyboardInterrupt
