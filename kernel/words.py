"""Refusals and reasons in the reader's language. REST speaks English, whoever asks; the pages say the same translated.

The sayings below are the messages that lifecycles and serializers really give, with names for what varies. A message
that is not among them is shown as it is. Used by kernel.pages and by the template filters.
"""

from __future__ import annotations

import re
from functools import cache

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

SAYINGS = (
    # names and values
    _("must be 1 to 50 letters a to z"),
    _("must be 1 to 50 of a to z and dots, and not begin with a dot"),
    _("must be a relative path of 1 to 200 of A-Z a-z 0-9 . _ / -"),
    _("must be a relative path without '..', '.' or empty parts"),
    _("must be a relative path"),
    _("must have no empty part, '.' or '..'"),
    _("must have no control characters"),
    _("must be valid UTF-8"),
    _("each part must have at most 255 bytes"),
    _("must be a whole number"),
    _("must be a number"),
    _("must be a finite number"),
    _("must be %(low)s to %(high)s"),
    _("must be at least %(low)s"),
    _("must be one of %(choices)s"),
    _("must be valid text"),
    _("must be an object of at most 100 strings"),
    _("names must match [A-Za-z_][A-Za-z0-9_]{0,99}"),
    _("%(name)s is the platform's own"),
    _("must have %(low)s to %(high)s characters"),
    # people
    _("already taken"),
    _("wrong username or password"),
    _("this account is not active; an operator can activate it"),
    _("too many failed logins, try again in %(wait)s s"),
    _("too many registrations from this address, try again in %(wait)s s"),
    _("not active"),
    _("must be an address that begins with http:// or https://"),
    _("must be a public address"),
    _("there is no such host"),
    _("its host could not be looked up in time, try again later"),
    # datasets and scripts
    _("you have a dataset %(name)s already"),
    _("%(stored)s bytes are stored, %(declared)s were declared"),
    _("no such dataset"),
    _("no such file"),
    _("too long, at most 2000 bytes and 100 folders"),
    _("a folder of that name is there"),
    _("a file of that name is there already"),
    _("a folder on the way is a file or a link"),
    _("must not go through a symbolic link"),
    _("%(user)s's .home is full: %(limit)s bytes at most, %(held)s are stored"),
    _("reported by the uploader"),
    _("no heartbeat and no bytes for %(seconds)s s"),
    # jobs
    _("you have a job %(name)s already"),
    _("there is no script %(entry)s; upload it to .home first"),
    _("you have no ready dataset %(name)s"),
    _("no such job"),
    _("no such tenant"),
    _("cancelled"),
    _("cancelled: the user was de-registered"),
    _("reported by the job"),
    _("registered"),
    _("the run is gone: the machine or its runner was restarted"),
    _("the run is gone and nobody saw its end: it, or the machine, was killed"),
    _("could not be started: %(problem)s"),
    _("could not start: %(problem)s"),
    _("killed with the process that guarded it"),
    _("out of memory (asked for: %(ram)s MiB), %(words)s"),
    _("probably out of memory: the machine had no more to give, %(words)s"),
    _("exit code %(code)s"),
    _("killed by signal %(signal)s"),
    # models and applications
    _("must be jobs/{job}, jobs/{job}/{path} or home/{path}"),
    _("there is nothing at %(src)s"),
    _("there are no files at %(src)s, or they are empty"),
    _("%(src)s cannot be read, or a link is in the way"),
    _("you have no job %(name)s"),
    _("the job %(name)s is %(state)s, its output can be taken once it has finished"),
    _("you have a model %(name)s already"),
    _("you have an application %(name)s already"),
    _("you have no model %(name)s"),
    _("the model %(name)s is %(state)s, it can be served when it is ready"),
    _("the application %(name)s serves this model; delete that first"),
    _("it does not load: %(reason)s"),
    _("it did not load within %(seconds)s s"),
    _("the check left no result"),
    _("the result of the check cannot be used: %(problem)s"),
    _("it did not answer within %(seconds)s s"),
    _("given up after %(count)s failures: %(reason)s"),
    _("must be JSON (%(problem)s)"),
    _("too long, at most 1 MiB; larger ones go through the application gateway"),
    _("the application is %(state)s, it answers when it is ready"),
    _("the last one is not answered yet"),
    # what a notification is of, and what became of it
    _("job"),
    _("dataset"),
    _("model"),
    _("application"),
    _("finished"),
    _("error"),
    _("down"),
    # resources
    _("%(asked)s asked, %(left)s left of the limit of %(limit)s for user %(user)s"),
    _("%(asked)s asked, the limit for user %(user)s is %(limit)s"),
    _("%(asked)s asked, the tenant has %(whole)s"),
    _("%(asked)s asked, %(left)s left in tenant %(tenant)s"),
    # logs: alerts, trainings
    _("is taken"),
    _("%(count)s anomalies within %(seconds)s s"),
    _("%(count)s new templates, such as: %(template)s"),
    _("no line for %(seconds)s s: %(workloads)s"),
    _("there is no log line of the watched workloads to learn from, within the last %(minutes)s minutes"),
    _("there is no line to learn from"),
    _("the trainer has been silent for %(seconds)s s"),
    _("the trained model cannot be used: %(problem)s"),
    _("the log store is not available, try again later"),
    # any object
    _("%(verb)s is not allowed while the %(kind)s is %(state)s"),
    # faults
    _("the task queue is not available, try again later"),
    _("the token cache is not available, try again later"),
    _("the database is not available, try again later"),
    _("the message bus is not available, try again later"),
    _("the platform has a fault, try again later"),
)
LONGEST = 500  # what is longer was not said by the platform
VARYING = re.compile(r"%\((\w+)\)s")


@cache
def _patterns() -> list[tuple[str, re.Pattern]]:
    """Each saying with the pattern that recognises it, those that vary least first."""
    found = []
    for saying in sorted(SAYINGS, key=lambda saying: (len(VARYING.findall(saying)), -len(saying))):
        parts = VARYING.split(saying)  # text, name, text, name, …
        pattern = "".join(f"(?P<{part}>.+?)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
        found.append((saying, re.compile(pattern, re.DOTALL)))
    return found


def say(message: str) -> str:
    """The message in the language of the page. `field: words` keeps its field; only the first line is translated."""
    first, newline, rest = str(message).partition("\n")
    if len(first) > LONGEST:
        return str(message)
    return (_saying(first) or _with_prefix(first) or first) + newline + rest


def _saying(text: str) -> str:
    for saying, pattern in _patterns():
        match = pattern.fullmatch(text)
        if match:
            values = {name: _saying(value) or value for name, value in match.groupdict().items()}
            return gettext(saying) % values if values else gettext(saying)
    return ""


def _with_prefix(text: str) -> str:
    prefix, colon, words = text.partition(": ")
    if not colon:
        return ""
    attempt = re.fullmatch(r"attempt (\d+)", prefix)
    if attempt:
        prefix = gettext("attempt %(number)s") % {"number": attempt[1]}
        return f"{prefix}: {_saying(words) or words}"
    return f"{prefix}: {_saying(words)}" if _saying(words) else ""
