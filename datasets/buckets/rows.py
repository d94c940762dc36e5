"""The only writer of Bucket, and who may use which. Called by api, pages, admin and the copies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts.models import SUBMITTING
from kernel import names, sealing
from kernel.database import violated
from kernel.environment import without
from kernel.errors import Refused
from kernel.locking import WrongState, locked
from kernel.messages import Message

from ..models import Bucket, Dataset, Manifest, State

KIND = "s3"
NAME = r"[a-z0-9][a-z0-9.-]{0,62}"
BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}"  # older ones of AWS, and other servers, allow more than S3 does today
REGION = r"[A-Za-z0-9-]{1,63}"
PURPOSE = "datasets.bucket"
NAMED = 20  # datasets of a refusal
NOT_EXTERNAL = Message("only files of a bucket can stay where they are (s3/{bucket}[/{path}])")
SOURCE = Message("must be s3/{bucket} or s3/{bucket}/{path}, with a bucket that an administrator has added")


_needs: list[Callable[[Bucket], object]] = []


def register_need(needs: Callable[[Bucket], object]) -> None:
    """Add a function that raises WrongState for a bucket with the files of something that cannot do without them."""
    _needs.append(needs)


def create(*, by: str, name: str, secret: str = "", tenants: Iterable = (), **fields) -> Bucket:
    """Add a bucket. `secret` is stored encrypted; members of the `tenants` may read it, or `everybody`.

    Raises Refused, which names the field.
    """
    if not re.fullmatch(NAME, name):
        raise Refused("must be 1 to 63 characters a to z, 0 to 9, . and -", field="name")
    row = Bucket(name=name, secret=sealing.seal(secret, PURPOSE))
    _set(row, **fields)
    try:
        with transaction.atomic():
            row.save()
            row.tenants.set(tenants)
    except IntegrityError as problem:
        if violated(problem) == "bucket_name":
            raise Refused("there is a bucket named %(name)s already", field="name", name=name)
        raise
    return row


def change(row: Bucket, *, by: str, secret: str = "", tenants: Iterable = (), **fields) -> None:
    """Change a bucket; an empty `secret` keeps the present one while the access key stays. Raises Refused, which names
    the field; Missing.
    """
    with locked(Bucket, pk=row.pk) as held:
        if secret or fields.get("access_key", held.access_key) != held.access_key:
            held.secret = sealing.seal(secret, PURPOSE)
        _set(held, **fields)
        held.save()
        held.tenants.set(tenants)
        _compare_again(held)


def delete(row: Bucket, *, by: str) -> None:
    """Forget a bucket; what was copied from it stays. Raises WrongState while files of datasets or models are in it,
    also of those in the trash.
    """
    with locked(Bucket, pk=row.pk) as held:
        _need(held)
        for needs in _needs:
            needs(held)
        held.delete()


def _external(row: Bucket) -> QuerySet[Dataset]:
    """Return the datasets whose files are in the bucket."""
    place = f"{KIND}/{row.name}"
    return Dataset.objects.filter(Q(src=place) | Q(src__startswith=f"{place}/"), external=True)


def _need(row: Bucket) -> None:
    """Raise WrongState while files of datasets are in the bucket."""
    named = _external(row).filter(state__in=(State.CREATING, State.READY)).order_by("pk")
    found = [f"{user}/{name}" for user, name in named.values_list("user__username", "name")[: NAMED + 1]]
    if found:
        raise WrongState(
            "the files of these datasets are in this bucket; delete the datasets first, also from the trash: %(names)s",
            names=", ".join(found[:NAMED]) + (" …" if len(found) > NAMED else ""),
        )


def _compare_again(row: Bucket) -> None:
    """Have no run read a folder of the bucket's mount that was compared before: it may be another one by now."""
    Manifest.objects.filter(version__dataset__in=_external(row), compared__isnull=False).update(compared=None)


def _set(row: Bucket, **fields) -> None:
    for field, value in fields.items():
        setattr(row, field, value)
    if missing := without("s3", "obstore"):
        raise Refused("needs %(packages)s", packages=missing)
    for field, pattern in (("bucket", BUCKET), ("region", REGION)):
        if not re.fullmatch(pattern, getattr(row, field)):
            raise Refused("is not a valid name", field=field)
    row.prefix = row.prefix.strip("/")
    if row.prefix:
        names.file_path(row.prefix, "prefix")
    _require_address(row.endpoint)
    if row.access == Bucket.Access.WRITE and row.signing == Bucket.Signing.NONE:
        raise Refused("a bucket whose requests are not signed can only be read", field="access")
    if row.signing != Bucket.Signing.KEY:
        row.access_key = row.secret = ""
    elif not row.access_key:
        raise Refused("is missing", field="access_key")
    elif not row.secret:
        raise Refused("is missing", field="secret")


def _require_address(endpoint: str) -> None:
    """Raise Refused unless this is the address of a server, or empty."""
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
        bare = not (parts.query or parts.fragment or parts.username or parts.password)
    except ValueError:
        valid = bare = False
    if endpoint and not (valid and bare and names.CONTROL.search(endpoint) is None):
        raise Refused("must be the address of a server, such as https://s3.example.com:9000", field="endpoint")


def usable(user) -> QuerySet[Bucket]:
    """Return the buckets that this user may read, by name."""
    # A viewer of a tenant submits nothing to it, and takes nothing from it.
    allowed = Q(everybody=True) | Q(tenants__memberships__user=user, tenants__memberships__role__in=SUBMITTING)
    return Bucket.objects.filter(pk__in=Bucket.objects.filter(allowed).values("pk")).order_by("name")


def spelled(src: str) -> str:
    """Return a source as it is stored: `s3://photos/june` is `s3/photos/june`."""
    return src.replace("://", "/", 1) if src.startswith(f"{KIND}://") else src


def is_source(src: str) -> bool:
    """Return whether this names a place in a bucket."""
    return src.startswith(f"{KIND}/")


def parse(src: str, field: str = "src") -> tuple[str, str]:
    """Return (the bucket's name, the path or "") of a dataset's source. Raises Refused."""
    kind, _slash, rest = src.partition("/")
    name, _slash, path = rest.partition("/")
    if kind != KIND or not re.fullmatch(NAME, name):
        raise Refused(SOURCE, field=field)
    path = path.removesuffix("/")
    return name, names.file_path(path, field) if path else ""


def find(user, name: str, field: str = "src") -> Bucket:
    """Return the bucket of that name that the user may read. Raises Refused, alike where there is none."""
    row = usable(user).filter(name=name).first()
    if row is None:
        raise Refused("there is no bucket named %(name)s that you may read", field=field, name=name)
    return row


def find_writable(user, name: str, field: str = "target") -> Bucket:
    """Return the bucket of that name that the user may write. Raises Refused."""
    row = find(user, name, field)
    if row.access != Bucket.Access.WRITE:
        raise Refused("the bucket %(name)s is read-only", field=field, name=name)
    return row


def may_write(user, src: str) -> bool:
    """Return whether the user may write the bucket of a source."""
    return usable(user).filter(name=parse(src)[0], access=Bucket.Access.WRITE).exists()


def secret_of(row: Bucket) -> str:
    """Return the secret key. Raises Refused (Unreadable) where MLP_SECRET_KEY has changed."""
    return sealing.unseal(row.secret, PURPOSE)
