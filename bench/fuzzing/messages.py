"""Messages on the bus: any bytes, JSON and protobuf to every subject that a service of the platform subscribes to."""

from __future__ import annotations

import asyncio
import json

import nats
from hypothesis import strategies as st
from instance import HOST

from fuzzing import world
from fuzzing.given import JSON, each
from fuzzing.ledger import Ledger
from fuzzing.world import World

# Those of docs/aiops-wire.md, and the reports of jobs.
SUBJECTS = [
    "raw_logs", "mlp.aiops.stored_logs", "preprocessed_logs_workload", "preprocessed_logs_pretrained_model",
    "opnilog_workload_logs", "model_inferenced_workload_logs", "inferenced_logs", "templates_index",
    "gpu_service_inference", "gpu_service_inference_internal", "gpu_service_training_internal", "gpu_service_running",
    "gpu_trainingjob_status", "gpu_training_job_status", "train_model", "train", "model_update",
    "model_workload_parameters", "model_status", "workload_parameters", "mlp.aiops.feedback", "mlp.aiops.explanations",
    f"job_metrics.{world.USERS[0]}.{world.KEPT}", f"job_metrics.{world.USERS[0]}.x", "job_metrics.a.b",
    f"job_values.{world.USERS[0]}.{world.KEPT}",
]  # fmt: skip
REPORT = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("user", "name", "epoch", "accuracy", "loss", "progress", "step", "values"), JSON)
)
COMMAND = st.fixed_dictionaries(
    {}, optional={
        "uuid": JSON, "workloads": st.dictionaries(st.text(max_size=9), JSON, max_size=2), "status": JSON,
        "bucket": JSON, "bucket_files": JSON, "source": JSON, "model": JSON, "payload": JSON, "max_size": JSON,
        "count": JSON, "parameters": JSON, "query": JSON,
    }
)  # fmt: skip


@st.composite
def payloads(draw) -> bytes:
    """Make a PayloadList by hand: fields of any number with any wire type, nested once."""
    fields = b""
    for number, text in draw(st.dictionaries(st.integers(1, 16), st.text(max_size=20), max_size=6)).items():
        data = text.encode()
        fields += bytes([number << 3 & 0x7F | draw(st.sampled_from([2, 2, 2, 0, 5])), len(data)]) + data
    return b"\n" + bytes([min(len(fields), 127)]) + fields[:127]


def bus(home: World, ledger: Ledger, seed: int, count: int) -> None:
    """Publish them all, and ask for the replies of some."""
    data = (
        st.binary(max_size=200) | (REPORT | COMMAND | JSON).map(lambda value: json.dumps(value).encode()) | payloads()
    )
    messages: list[tuple[str, bytes]] = []
    each(st.tuples(st.sampled_from(SUBJECTS), data), count, seed, messages.append)
    asyncio.run(_publish(home, ledger, messages))


async def _publish(home: World, ledger: Ledger, messages: list[tuple[str, bytes]]) -> None:
    password = (home.platform.root / "nats-password").read_text().strip()
    address = f"nats://{HOST}:{home.platform.base + 10}"
    client = await nats.connect(address, user="platform", password=password)
    for number, (subject, data) in enumerate(messages):
        await client.publish(subject, data, reply="fuzz.reply" if number % 3 == 0 else "")
        ledger.count(f"message to {subject}", "sent")
        if number % 50 == 49:
            await client.flush()
    await client.flush()
    await client.close()
