"""`completion`: what a shell offers while a command is typed. The shell asks this program at each press of Tab."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from . import profiles, shown
from .connection import Connection, Rest
from .texts import tr
from .transfer.errors import Failure, Trouble

BASH = """_mlp() {{
    local IFS=$'\\n'
    COMPREPLY=($({program} completion words "$COMP_CWORD" -- "${{COMP_WORDS[@]}}" 2>/dev/null))
}}
complete -o default -F _mlp mlp mlp-client
"""
ZSH = """(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
_mlp() {{
    local -a found
    found=("${{(@f)$({program} completion words $((CURRENT - 1)) -- "${{words[@]}}" 2>/dev/null)}}")
    if (( $#found )) && [[ -n $found[1] ]]; then compadd -a found; else _files; fi
}}
compdef _mlp mlp mlp-client
if (( $+aliases[mlp] )); then unalias mlp; functions[mlp]={function}; fi  # zsh would complete what the alias expands to
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH}
NAMED = {  # by the argument's name in the help
    "JOB": "jobs", "SWEEP": "sweeps", "PIPELINE": "pipelines", "FILE|PIPELINE": "pipelines", "SCHEDULE": "schedules",
    "MODEL": "models", "APP": "apps", "WORKSPACE": "workspaces", "JOB[/PATH]": "jobs", "DATASET": "datasets",
}  # fmt: skip
OFFERED, PATIENCE_S = 100, 0.0
WORDS = "words"  # what the scripts ask for


def declare(command) -> None:
    """Add the verb."""
    parser = command("completion", completion, tr("print what makes a shell complete commands"), connects=False)
    parser.description = tr('Bash: eval "$(mlp completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc')
    parser.add_argument("shell", choices=[*SCRIPTS, WORDS], metavar="SHELL", help="bash, zsh")
    parser.add_argument("place", type=int, nargs="?", help=argparse.SUPPRESS)
    parser.set_defaults(takes_args=True)


def completion(_rest, options: argparse.Namespace, say) -> dict:
    """Return the script of a shell; with `words` what fits at the place of the command line."""
    if options.shell == WORDS:
        options.show = lambda row: [shown.line(word) for word in row["words"]]
        return {"words": fitting(options.parser, options.args[1:], (options.place or 1) - 1)}
    program = " ".join(map(shlex.quote, [sys.executable, os.path.abspath(sys.argv[0])]))
    options.show = lambda row: shown.text(row["script"])
    return {"script": SCRIPTS[options.shell].format(program=program, function=shlex.quote(program + ' "$@"'))}


def fitting(parser: argparse.ArgumentParser, words: list, place: int) -> list:
    """Return what may stand at that place of the words after the program's name, by what is typed of it."""
    typed = words[place] if place < len(words) else ""
    before = words[:place]
    if "--" in before:
        return []
    here, given, taking = parser, 0, None
    for word in before:
        if taking is not None:
            taking = None
        elif word.startswith("-"):
            taking = _option(here, word)
        elif (verbs := _verbs(here)) is not None:
            if word not in verbs.choices:
                return []
            here, given = verbs.choices[word], 0
        else:
            given += 1
    return sorted(word for word in _offers(here, given, taking, typed) if word.startswith(typed))


def _offers(here: argparse.ArgumentParser, given: int, taking, typed: str):
    if taking is not None:
        return map(str, taking.choices or ())
    if typed.startswith("-"):
        return [name for action in here._actions for name in action.option_strings if action.help != argparse.SUPPRESS]
    verbs = _verbs(here)
    if verbs is not None:
        return verbs.choices
    wanted = [action for action in here._actions if not action.option_strings and action.help != argparse.SUPPRESS]
    many = wanted and wanted[-1].nargs in ("+", "*")
    action = wanted[given] if given < len(wanted) else wanted[-1] if many else None
    if action is None:
        return []
    return (
        (str(each) for each in action.choices if each != WORDS)
        if action.choices
        else _names(NAMED.get(action.metavar or "", ""))
    )


def _verbs(here: argparse.ArgumentParser):
    return next((action for action in here._actions if isinstance(action, argparse._SubParsersAction)), None)


def _option(here: argparse.ArgumentParser, word: str):
    """Return the option that takes the next word, None where the word is a flag or has its value."""
    action = here._option_string_actions.get(word)
    return action if action is not None and action.nargs is None else None


def _names(kind: str) -> list:
    """Return the names of the user's newest objects of a kind, none where the platform does not answer at once."""
    if not kind:
        return []
    try:
        where = profiles.where(argparse.Namespace(profile=None, url=None, token=None, user=None, cacert=None))
        rest = Rest(Connection(where.url, where.cacert, PATIENCE_S))
        rest.authenticate(where.token, where.user)
        return [row["name"] for row in rest.rows(kind, OFFERED)]
    except (Failure, Trouble, OSError):
        return []
