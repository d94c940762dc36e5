"""The base of every REST view: authentication, the owner of the object, the body, the answer.

A view declares `calls`: for each method its effect, its body, its answer and its status. The same declaration parses
the request and documents it (kernel.schema), so the reference cannot drift from the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django.contrib.auth import get_user_model
from rest_framework.permissions import SAFE_METHODS
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from . import disk, stored
from .effects import STORING, Effect
from .errors import Refused
from .fields import StrictSerializer
from .locking import Missing
from .messages import Message, word
from .names import NAME
from .registering import narrowed, rights_of
from .rest import PAGE_LIMIT

BIG = 2**63 - 1


def whole(low: int = 0, high: int = BIG) -> dict:
    """Return the schema of a whole number."""
    return {"type": "integer", "format": "int64", "minimum": low, "maximum": high}


TRASH = (("trash", whole(0, 1), "1: move it to the trash, from where it can be restored"),)


@dataclass(frozen=True)
class Call:
    """One method of one path. `effect` says what it does, for the scopes of named tokens: without one the call takes
    full tokens only. `frees` marks one that submits, but only ends work or makes room: it goes on while the disk is
    nearly full. `out` is None for the JSON string "", str for a JSON string; `media` is for other bodies, `stream` for
    the body of an answer that is followed.
    """

    summary: str
    effect: Effect | None = None
    frees: bool = False
    once: bool = False  # creates nothing again when it is repeated with its Idempotency-Key (kernel.request_keys)
    for_dataset: bool = False  # also for a token of the one dataset that the path names
    body: type[StrictSerializer] | None = None
    out: type[Serializer] | type[str] | None = None
    many: bool = False
    status: int = 200
    states: tuple[str, ...] = ()
    query: tuple[tuple[str, type | dict, str], ...] = field(default=())
    needs: tuple[str, ...] = ()  # parameters of the query that must be given
    media: tuple[str, ...] = ()
    stream: str = ""
    one_or_many: bool = False
    ignores_body: bool = False
    most_offset: int = BIG
    next_offset: bool = False
    after: dict[str, dict] = field(default_factory=dict)  # OpenAPI links to this call, by the operation they begin at

    @property
    def stores(self) -> bool:
        """Return whether it takes room on the disk."""
        return self.effect in STORING and not self.frees

    @property
    def headers(self) -> tuple[tuple[str, str, bool], ...]:
        """Return the name, the meaning and the presence of each header of the answer."""
        if self.many:
            return (("X-Total-Count", "number of all entries", True),)
        return (("X-Next-Offset", "offset of the next request", False),) if self.next_offset else ()


class ContractView(APIView):
    calls: dict[str, Call] = {}
    kind = "user"
    internal = False  # only administrators and service tokens
    accepted = frozenset({"user"})  # kinds of token; staff's own and service tokens join when `internal`
    reads_nan = False  # whether NaN, Infinity and -Infinity in its body are numbers (kernel.rest)
    security: tuple[str, ...] = ("bearer", "session")  # for the reference, as are the patterns of the path's segments
    segments: dict[str, str] = {"user": NAME, "name": NAME, "tenant": NAME}
    metadata_class = None
    owner = None

    @classmethod
    def as_view(cls, **initkwargs):
        undeclared = {m.upper() for m in cls.http_method_names if hasattr(cls, m)} - set(cls.calls)
        undeclared -= {"HEAD", "OPTIONS"}
        assert not undeclared, f"{cls.__name__} answers {undeclared} without declaring them in `calls`"
        return super().as_view(**initkwargs)

    def initial(self, request, *args, **kwargs):
        super().initial(request, *args, **kwargs)
        self._check_token(request)
        self._check_room(request)
        self._check_query(request)
        self._check_body(request)
        if "user" in kwargs:
            self.owner = self._owner(request, kwargs["user"])

    def options(self, request, *args, **kwargs):
        return self.http_method_not_allowed(request, *args, **kwargs)

    def _check_token(self, request) -> None:
        if not request.user or not request.user.is_authenticated:
            return
        kind = getattr(request.auth, "kind", "user")
        if self.internal:
            if kind != "service" and not request.user.is_administrator:
                raise Refused("this call requires a service token or an administrator", field="token")
        elif kind not in self.accepted or (kind == "job" and request.method in SAFE_METHODS):  # a job reports only
            raise Refused("a %(kind)s token cannot make this call", field="token", kind=word(kind))

    def _check_room(self, request) -> None:
        call = self.calls.get(request.method)
        if request.method not in SAFE_METHODS and call is not None and call.stores:
            disk.require()
            if not getattr(request.user, "is_administrator", False):  # administrators change limits, too
                stored.require(getattr(request.user, "pk", None))

    def _check_query(self, request) -> None:
        call = self.calls.get("GET" if request.method == "HEAD" else request.method)
        if call is None:
            return  # the method will be refused
        known = {name for name, _kind, _words in call.query}
        known |= ({"limit", "offset"} if call.many else set()) | ({"state"} if call.states else set())
        for parameter in request.query_params:
            if parameter not in known:
                raise Refused("unknown parameter", field=parameter)
        for parameter in call.needs:
            if not request.query_params.get(parameter):
                raise Refused("is required", field=parameter)

    def _check_body(self, request) -> None:
        """Validate the body before anything is looked up: a wrong type is reported before a missing object."""
        if request.method.upper() not in self.calls or self.call.one_or_many or self.call.ignores_body:
            return
        if self.call.body is not None:
            self._body = narrowed(rights_of(request.auth), self.call.body.read(request.data))
        elif request.method != "GET" and request.data:
            extra = next(iter(request.data)) if isinstance(request.data, dict) else "body"
            raise Refused(Message("must be empty") if extra == "body" else Message("unknown field"), field=extra)

    def _owner(self, request, username: str):
        """Return the user of the path: the caller, or for staff anybody. Another user's counts as a missing object."""
        if request.user.username == username:
            return request.user
        if request.user.is_administrator:
            owner = get_user_model().objects.filter(username=username).first()
            if owner is not None:
                return owner
            raise Missing("user")
        raise Missing(self.kind)

    @property
    def by(self) -> str:
        """Return the actor for the history: the caller's name; `job` for a job's own token."""
        return "job" if getattr(self.request.auth, "kind", "user") == "job" else self.request.user.username

    @property
    def call(self) -> Call:
        return self.calls["GET" if self.request.method == "HEAD" else self.request.method]

    def body(self) -> dict:
        """Return the validated body of this call."""
        return self._body

    def answer(self, instance=None) -> Response:
        """Return the answer as the call declares it: the object, or "" when it declares none."""
        out = self.call.out
        if out in (None, str):
            return Response(instance or "", status=self.call.status)
        return Response(out(instance, context={"request": self.request}).data, status=self.call.status)

    def in_state(self, queryset):
        """Return the rows in the state of ?state=, all of them without it. Raises Refused for an unknown state."""
        state = self.request.query_params.get("state")
        if state is None:
            return queryset
        if state not in self.call.states:
            raise Refused("must be one of %(choices)s", field="state", choices=", ".join(self.call.states))
        return queryset.filter(state=state)

    def page(self, queryset, prepare: Callable[[list], object] | None = None) -> Response:
        """Return a plain array, newest first, paged by ?limit= and ?offset=, filtered by ?state= where the call has
        states. `prepare` adds to the rows of the page what is not in the database.
        """
        queryset = self.in_state(queryset)
        limit = query_int(self.request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(self.request, "offset", 0, 0)
        rows = list(queryset.order_by("-pk")[offset : offset + limit])
        if prepare is not None:
            prepare(rows)
        headers = {"X-Total-Count": str(queryset.count())}
        return Response(self.call.out(rows, many=True, context={"request": self.request}).data, headers=headers)


def to_trash(request) -> bool:
    """Return whether a DELETE is to move the object to the trash: `?trash=1`."""
    return bool(query_int(request, "trash", 0, 0, 1))


def query_int(request, name: str, default: int, low: int, high: int = BIG) -> int:
    """Return a whole number from the query string. Raises Refused naming it."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        if high < BIG:
            raise Refused("must be a whole number from %(low)s to %(high)s", field=name, low=low, high=high)
        raise Refused("must be a whole number of at least %(low)s", field=name, low=low)
    return int(text)
