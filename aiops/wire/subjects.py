"""The NATS interface of AIOps as data: every subject, its two sides, payload and reply; buckets, keys and replies.

The only place with these strings. docs/aiops-wire.md is generated from here (tools/aiops_wire.py). The names are
Opni's; our own begin with `mlp.aiops.` or are in the bucket `mlp-aiops`.
"""

from __future__ import annotations

from dataclasses import dataclass

# --- subjects ------------------------------------------------------------------------------------------------------
RAW_LOGS = "raw_logs"
STORED_LOGS = "mlp.aiops.stored_logs"
PREPROCESSED_WORKLOAD = "preprocessed_logs_workload"
PREPROCESSED_PRETRAINED = "preprocessed_logs_pretrained_model"
OPNILOG_WORKLOAD = "opnilog_workload_logs"
MODEL_INFERENCED_WORKLOAD = "model_inferenced_workload_logs"
INFERENCED = "inferenced_logs"
TEMPLATES_INDEX = "templates_index"
GPU_INFERENCE = "gpu_service_inference"
GPU_INFERENCE_INTERNAL = "gpu_service_inference_internal"
GPU_TRAINING_INTERNAL = "gpu_service_training_internal"
GPU_RUNNING = "gpu_service_running"
GPU_JOB_STATUS = "gpu_trainingjob_status"
GPU_JOB_STATUS_ALSO = "gpu_training_job_status"
TRAIN_MODEL = "train_model"
TRAIN = "train"
MODEL_UPDATE = "model_update"
WORKLOAD_PARAMETERS_UPDATE = "model_workload_parameters"
MODEL_STATUS = "model_status"
WORKLOAD_PARAMETERS = "workload_parameters"
FEEDBACK = "mlp.aiops.feedback"
EXPLANATIONS = "mlp.aiops.explanations"
KNOWN_VERDICTS = "mlp.aiops.known_verdicts"
OWN_MODEL_LOGS = "mlp.aiops.own_model_logs"
OWN_MODEL_VERDICTS = "mlp.aiops.own_model_verdicts"

# --- words ---------------------------------------------------------------------------------------------------------
JOB_START, JOB_END = b"JobStart", b"JobEnd"
YES, NO = b"YES", b"NO"
CHECK_UP, RUNNING = b"check-up", b"running"
SUBMITTED, MODEL_RESET = b"training job submitted", b"model reset"
NULOG_TRAIN, DRAIN_SOURCE = "nulog-train", "drain"
DRAIN, OPNILOG, NORMAL, ANOMALY, WORKLOAD = "drain", "opnilog", "Normal", "Anomaly", "workload"
STATUS_TRAIN, STATUS_UPDATE, STATUS_RESET = "train", "update", "reset"

# Values of ModelStatus.status and of its statistics.stage; NOT_STARTED is sent on `model_status` only.
TRAINING, COMPLETED, FAILED, NO_MODEL = "training", "completed", "training failed", "no model trained"
NOT_STARTED = "not started"
FETCHING, TRAIN_STAGE = "fetching data", "train"

MODEL_BUCKET, MODEL_FILE, VOCAB_FILE = "opni-nulog-models", "nulog_model_latest.pt", "vocab.txt"

# --- limits --------------------------------------------------------------------------------------------------------
MAX_PAYLOAD = 8 << 20  # of the NATS server; a list is split below it
MAX_OFFER = 512  # items of one gpu_service_inference
OFFER_TIMEOUT_S = 1.0
RUNNING_TIMEOUT_S = 5.0

# --- JetStream key-value -------------------------------------------------------------------------------------------
AGGREGATION_BUCKET, AGGREGATION = "os-workload-aggregation", "aggregation"
PARAMETERS_BUCKET, PARAMETERS, LAST_TRAINED = "model-training-parameters", "modelTrainingParameters", "lastModelTrained"
STATISTICS_BUCKET, STATUS = "model-training-statistics", "modelTrainingStatus"
OWN_BUCKET, OWN_GPU, OWN_DECISION, OWN_WATCHLIST, OWN_DETAIL = "mlp-aiops", "gpu", "decision", "watchlist", "training"
OWN_RETRAIN = "anew"
OWN_EXCHANGE, OWN_UNJUDGED = "exchange", "unjudged"


@dataclass(frozen=True)
class Subject:
    """One subject. `queue` is the queue group of our subscriber; "" means that every replica receives each message.

    `opni_queue` is Opni's own, where ours differs; the reason is in `note`. `also`: further subscribers of ours, each
    with a queue group of its own.
    """

    name: str
    publisher: str
    subscriber: str
    queue: str
    payload: str
    reply: str = ""
    opni_queue: str | None = None
    note: str = ""
    also: tuple[tuple[str, str], ...] = ()


LIST = "PayloadList"
SHARED = "one of several replicas answers, so that the work is done once"
SUBJECTS = {
    entry.name: entry
    for entry in (
        Subject(RAW_LOGS, "ingest plug-ins, shippers", "preprocessing", "workers", "one Payload",
                also=(("intake", "intake"),), note="the intake stores what came this way"),
        Subject(STORED_LOGS, "log intake", "preprocessing", "workers", LIST,
                note="our own: lines already stored; `MLP_AIOPS_SUBJECT` may put `raw_logs` in its place"),
        Subject(PREPROCESSED_WORKLOAD, "preprocessing", "drain", "", LIST, note="one replica is active, others wait"),
        Subject(PREPROCESSED_PRETRAINED, "preprocessing", "(Opni's pretrained DRAIN)", "workers", LIST),
        Subject(OPNILOG_WORKLOAD, "drain, on a miss", "inference", "workers", LIST),
        Subject(
            GPU_INFERENCE, "inference", "training-controller", "controllers", f"{LIST}, at most 512 items",
            reply="`YES` or `NO`, within 1 s", opni_queue="", note=SHARED,
        ),
        Subject(
            GPU_INFERENCE_INTERNAL, "training-controller", "gpu-controller", "gpu", f"{LIST}, the same bytes",
            opni_queue="", note=SHARED,
        ),
        Subject(GPU_RUNNING, "training-controller", "gpu-controller", "", "`check-up`", reply="`running`"),
        Subject(MODEL_INFERENCED_WORKLOAD, "inference, gpu-controller", "drain", "", LIST, opni_queue="workers",
                note="the active replica alone learns"),
        Subject(INFERENCED, "drain", "write-back", "workers", LIST),
        Subject(TEMPLATES_INDEX, "drain", "write-back", "workers", LIST),
        Subject(TRAIN_MODEL, "gateway", "training-controller", "controllers",
                '`{"uuid":…,"workloads":{cluster:{namespace:[deployment]}}}`; also the bare map; `{}` resets',
                reply="`training job submitted` or `model reset`, before any work", opni_queue="", note=SHARED),
        Subject(TRAIN, "training-controller", "training-controller", "controllers",
                '`{"max_size":…,"count":…,"parameters":{…},"query":{…}}`', opni_queue="", note=SHARED),
        Subject(GPU_TRAINING_INTERNAL, "training-controller", "gpu-controller", "",
                '`{"source":"drain","model":"nulog-train","payload":{…}}`'),
        Subject(GPU_JOB_STATUS, "training-controller, gpu-controller", "training-controller", "",
                "`JobStart` or `JobEnd`"),
        Subject(GPU_JOB_STATUS_ALSO, "(another spelling)", "training-controller", "", "`JobStart` or `JobEnd`"),
        Subject(MODEL_UPDATE, "gpu-controller, training-controller",
                "inference, gpu-controller, training-controller, drain, models", "",
                '`{"status":"training"}`, `{"status":"reset"}` or `{"bucket":…,"bucket_files":{…}}`'),
        Subject(WORKLOAD_PARAMETERS_UPDATE, "training-controller", "preprocessing, drain", "",
                '`{"workloads":{…},"status_type":"train"|"update"|"reset"}`', opni_queue="workers (preprocessing)",
                note="every replica must know the watchlist"),
        Subject(MODEL_STATUS, "gateway (G1, G2)", "training-controller", "controllers", "ignored",
                reply="`training`, `completed` or `not started`", opni_queue="", note=SHARED),
        Subject(WORKLOAD_PARAMETERS, "gateway (G1)", "training-controller", "controllers", "ignored",
                reply="`{cluster:{namespace:[deployment]}}`", opni_queue="", note=SHARED),
        Subject(EXPLANATIONS, "inference, gpu-controller, drain", "write-back", "workers",
                '`[{"_id":…,"cluster_id":…,"namespace_name":…,"masked_log":…,"unexpected":[[position,word],…]}]`'
                '; `"version"` of a tenant\'s own model',
                also=(("drain", ""),),
                note="our own: which words of an anomaly the model did not expect, or `[position,value,usual]`"),
        Subject(OWN_MODEL_LOGS, "drain, on a miss", "inference", "workers", f"{LIST} with `model_version`",
                note="our own: lines that a tenant's own model judges"),
        Subject(OWN_MODEL_VERDICTS, "inference", "drain", "", f"{LIST} with `tenant` and `model_version`",
                note="our own: their verdicts; the active replica alone learns"),
        Subject(FEEDBACK, "pages, REST", "drain", "", LIST,
                note="our own: an administrator's label for a masked text; empty: a user has given labels"),
        Subject(
            KNOWN_VERDICTS, "log intake", "drain", "", "`[[cluster,namespace,deployment,[text,…],[lines,…]],…]`",
            reply="`[null or [null or [level,template,number,confidence,unexpected,limits],…],…]`; a "
            "seventh is the tenant whose own model gave it",
            note="our own: verdicts of masked texts, to be stored with their lines; the active replica answers",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """One key of a JetStream key-value bucket."""

    bucket: str
    key: str
    value: str
    writer: str


KEYS = (
    Key(AGGREGATION_BUCKET, AGGREGATION, '`{"ByCluster":{…}}`, JSON', "aggregation, every 30 s"),
    Key(PARAMETERS_BUCKET, PARAMETERS, '`{"uuid":…,"workloads":{…}}`, JSON', "gateway, on each request to train"),
    Key(PARAMETERS_BUCKET, LAST_TRAINED, "the whole `gpu_service_training_internal` object; `{}` after a reset",
        "gpu-controller on success, training-controller on reset"),
    Key(STATISTICS_BUCKET, STATUS, "ModelStatus, JSON of protobuf", "gateway"),
    Key(OWN_BUCKET, OWN_GPU, "our own: who trains, until when its lease runs, whether JobEnd is out",
        "training-controller, reconcile"),
    Key(OWN_BUCKET, OWN_DECISION, "our own: the last request that was decided, and what about it",
        "training-controller"),
    Key(OWN_BUCKET, OWN_RETRAIN, "our own: the request that trains also where no workload was added", "gateway"),
    Key(OWN_BUCKET, OWN_WATCHLIST, "our own: the watchlist in force", "training-controller"),
    Key(OWN_BUCKET, OWN_EXCHANGE, "our own: which version's files the bucket of models holds, and their tags; when a "
        "model was last announced", "models, reconcile, REST"),
    Key(OWN_BUCKET, OWN_UNJUDGED, "our own: how many lines nobody can judge, since when", "housekeeping"),
    Key(OWN_BUCKET, OWN_DETAIL, "our own: what the status cannot carry: loss, epochs, device, the reason of a failure",
        "gateway, reconcile"),
)  # fmt: skip
BUCKETS = tuple(dict.fromkeys(entry.bucket for entry in KEYS))
