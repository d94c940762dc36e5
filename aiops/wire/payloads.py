"""The log protobuf: Payload and PayloadList, as bytes and back. Used by every service and by the intake.

The classes are protobuf's own, made from the fourteen fields below (package `loganomaly`, Opni's numbers) and two of
ours, so unknown fields of a newer sender are kept when a message is passed on. A wrong payload raises WireError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kernel import bus

from .subjects import MAX_PAYLOAD

_TYPE = descriptor_pb2.FieldDescriptorProto
FIELDS = (
    ("_id", _TYPE.TYPE_STRING),
    ("cluster_id", _TYPE.TYPE_STRING),
    ("log", _TYPE.TYPE_STRING),
    ("masked_log", _TYPE.TYPE_STRING),
    ("anomaly_level", _TYPE.TYPE_STRING),
    ("log_type", _TYPE.TYPE_STRING),
    ("template_matched", _TYPE.TYPE_STRING),
    ("template_cluster_id", _TYPE.TYPE_INT64),
    ("inference_model", _TYPE.TYPE_STRING),
    ("opnilog_confidence", _TYPE.TYPE_FLOAT),
    ("pod_name", _TYPE.TYPE_STRING),
    ("namespace_name", _TYPE.TYPE_STRING),
    ("deployment", _TYPE.TYPE_STRING),
    ("service", _TYPE.TYPE_STRING),
)
# Ours, which Opni's services pass on unread: the tenant whose own model judges the line (0: the platform's), and the
# version of it.
OWN_FIELDS = (("tenant", 1001, _TYPE.TYPE_INT64), ("model_version", 1002, _TYPE.TYPE_STRING))
HEAD_ROOM = 1 << 12  # below the server's limit


class WireError(ValueError):
    """The bytes are not a payload of the subject."""


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="mlp/log_anomaly.proto", package="loganomaly", syntax="proto3")
    payload = file.message_type.add(name="Payload")
    for number, (name, kind) in enumerate(FIELDS, start=1):
        payload.field.add(name=name, number=number, type=kind, label=_TYPE.LABEL_OPTIONAL)
    for name, number, kind in OWN_FIELDS:
        payload.field.add(name=name, number=number, type=kind, label=_TYPE.LABEL_OPTIONAL)
    items = file.message_type.add(name="PayloadList").field.add(name="items", number=1, type=_TYPE.TYPE_MESSAGE)
    items.label, items.type_name = _TYPE.LABEL_REPEATED, ".loganomaly.Payload"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"loganomaly.{name}"))
        for name in ("Payload", "PayloadList")
    )


Payload, PayloadList = _classes()


def decode(data: bytes) -> list[Payload]:
    """Return the items of a PayloadList. Raises WireError for anything else, and for items without `_id`."""
    try:
        items = PayloadList.FromString(data).items
    except (DecodeError, UnicodeDecodeError) as problem:
        raise WireError(f"no PayloadList: {problem}") from problem
    if data and not items:
        raise WireError("no PayloadList: not one item in it")
    for item in items:
        if not item._id:
            raise WireError("no PayloadList: an item without _id")
    return list(items)


def decode_one(data: bytes) -> Payload:
    """Return a single Payload, as in `raw_logs`. Raises WireError, also for a list, which can be parsed by accident."""
    try:
        item = Payload.FromString(data)
    except (DecodeError, UnicodeDecodeError) as problem:
        raise WireError(f"no Payload: {problem}") from problem
    if not item._id or not item._id.isprintable():
        raise WireError("no Payload: its _id is missing or not readable")
    return item


def encode(items: Iterable[Payload]) -> bytes:
    """Return one PayloadList, whatever its size."""
    return PayloadList(items=items).SerializeToString()


def batches(items: Sequence[Payload], most: int = 1 << 30, limit: int | None = None) -> Iterator[bytes]:
    """Yield the items in order as PayloadLists of at most `most` items and `limit` bytes each; none for no items.

    `limit` is Opni's 8 MiB, or what the server allows where that is less. A larger single item has its texts cut: the
    verdict needs its id, not its megabytes.
    """
    limit = limit or _limit()
    batch: list[Payload] = []
    size = 0
    for item in items:
        weight = item.ByteSize() + 6  # tag and length of the item in the list
        if weight > limit:
            item = shortened(item, limit)
            weight = item.ByteSize() + 6
        if batch and (size + weight > limit or len(batch) >= most):
            yield encode(batch)
            batch, size = [], 0
        batch.append(item)
        size += weight
    if batch:
        yield encode(batch)


def singles(items: Iterable[Payload]) -> Iterator[bytes]:
    """Yield each item as a Payload of its own, as in `raw_logs`; the texts of one above the server's limit are cut."""
    limit = _limit()
    for item in items:
        yield (item if item.ByteSize() <= limit else shortened(item, limit)).SerializeToString()


def _limit() -> int:
    return min(MAX_PAYLOAD, bus.max_payload()) - HEAD_ROOM


def shortened(item: Payload, limit: int) -> Payload:
    """Return a copy whose long texts are cut so that it fits the limit."""
    copy = Payload()
    copy.CopyFrom(item)
    room = limit // 4
    for name, kind in FIELDS:
        if kind == _TYPE.TYPE_STRING and len(getattr(copy, name)) > room // 4:
            setattr(copy, name, getattr(copy, name).encode()[: room // 2].decode(errors="ignore"))
    copy.DiscardUnknownFields()
    return copy
