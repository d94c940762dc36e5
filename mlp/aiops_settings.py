"""The settings of AIOps: where log lines are kept, how long, and how log models are trained. Used by settings.py."""

from __future__ import annotations

from kernel.environment import Section, require

LOGS = Section("AIOps")
AIOPS_LOGSTORE = LOGS.choice(
    "MLP_AIOPS_LOGSTORE",
    "database",
    ["database", "opensearch"],
    help="where log lines are kept: `database` or `opensearch`",
)
if AIOPS_LOGSTORE == "opensearch":
    require("MLP_AIOPS_LOGSTORE=opensearch", "opensearch", "opensearchpy")
OPENSEARCH_URL = LOGS.url(
    "OPENSEARCH_URL", ("http", "https"), help="the OpenSearch server, for `MLP_AIOPS_LOGSTORE=opensearch`"
)
AIOPS_RETENTION_DAYS = LOGS.integer(
    "MLP_AIOPS_RETENTION_DAYS", 7, 1, 3650, unit="days", help="how long log lines are kept"
)
AIOPS_RETENTION_MIB = LOGS.integer(
    "MLP_AIOPS_RETENTION_MIB", 4096, 16, unit="MiB", help="the total size of the stored log lines"
)
AIOPS_USER_MIB = LOGS.integer(
    "MLP_AIOPS_USER_MIB",
    2048,
    16,
    unit="MiB",
    help="the size of one user's stored log lines; beyond it the user's oldest are removed",
)
AIOPS_SUBJECT = LOGS.choice(
    "MLP_AIOPS_SUBJECT",
    "mlp.aiops.stored_logs",
    ["mlp.aiops.stored_logs", "raw_logs"],
    help="the NATS subject on which stored lines are sent to preprocessing; `raw_logs` where Opni's own preprocessing "
    "runs in place of ours",
)
AIOPS_TRAINING_WINDOW_S = LOGS.integer(
    "MLP_AIOPS_TRAINING_WINDOW_S",
    24 * 3600,
    60,
    unit="s",
    help="how far back from the request the logs go that a log model is trained on",
)
AIOPS_SESSION_QUIET_S = LOGS.integer(
    "MLP_AIOPS_SESSION_QUIET_S",
    300,
    10,
    86_400,
    unit="s",
    help="how long no line of a session (a request, a trace) comes before the session has ended; for models that "
    "are trained from then on",
)
AIOPS_TRAINING_CPU = LOGS.integer(
    "MLP_AIOPS_TRAINING_CPU",
    2,
    1,
    unit="cores",
    help="the CPUs of the training of a log model, which are those of the tenant `default`; where jobs and "
    "applications leave less, it takes what is left, half a core at least",
)
AIOPS_TRAINING_RAM_MIB = LOGS.integer(
    "MLP_AIOPS_TRAINING_RAM", 4096, 512, unit="MiB", help="the memory that it may use, of the same tenant"
)
AIOPS_RULES_PER_USER = LOGS.integer(
    "MLP_AIOPS_RULES_PER_USER", 20, 0, 10_000, help="alert rules that a user may have; administrators have no limit"
)
AIOPS_SEARCHES_PER_USER = LOGS.integer(
    "MLP_AIOPS_SEARCHES_PER_USER", 50, 0, 10_000, help="saved searches that a user may have; administrators: no limit"
)
AIOPS_LABELS_PER_USER = LOGS.integer(
    "MLP_AIOPS_LABELS_PER_USER",
    1000,
    0,
    100_000,
    help="texts of log lines that a user may label as normal or as an anomaly; administrators: no limit",
)
AIOPS_WATCHED_PER_USER = LOGS.integer(
    "MLP_AIOPS_WATCHED_PER_USER", 20, 0, 10_000, help="workloads that a user may watch; administrators: no limit"
)
AIOPS_EXPORT_LINES = LOGS.integer(
    "MLP_AIOPS_EXPORT_LINES", 100_000, 1, help="log lines that one export of a search may have; the newest are taken"
)
AIOPS_TRAINING_PARAMETERS: dict = {}  # overrides the model's own; tests train a small model

AIOPS_S3_BUCKET = LOGS.text(
    "MLP_AIOPS_S3_BUCKET",
    help="a bucket through which log models are exchanged with Opni's services, which call theirs `opni-nulog-models`; "
    "without it models stay on this platform ([aiops-wire.md](aiops-wire.md#models))",
)
if AIOPS_S3_BUCKET:
    require("MLP_AIOPS_S3_BUCKET", "s3", "obstore")
AIOPS_S3_ENDPOINT = LOGS.url(
    "MLP_AIOPS_S3_ENDPOINT", ("https", "http"), help="the S3 server of that bucket, if it is not AWS"
)
AIOPS_S3_REGION = LOGS.text("MLP_AIOPS_S3_REGION", "us-east-1", help="the region of that bucket")
AIOPS_S3_ACCESS_KEY = LOGS.secret("MLP_AIOPS_S3_ACCESS_KEY", help="the access key of that bucket")
AIOPS_S3_SECRET_KEY = LOGS.secret("MLP_AIOPS_S3_SECRET_KEY", help="its secret key")
