"""The settings of AIOps: where log lines are kept, how long, and how log models are trained. Used by settings.py."""

from __future__ import annotations

from kernel.environment import Section

LOGS = Section("AIOps")
AIOPS_LOGSTORE = LOGS.choice(
    "MLP_AIOPS_LOGSTORE",
    "database",
    ["database", "opensearch"],
    help="where log lines are kept: `database` or `opensearch`",
)
OPENSEARCH_URL = LOGS.url(
    "OPENSEARCH_URL", ("http", "https"), help="the OpenSearch server, for `MLP_AIOPS_LOGSTORE=opensearch`"
)
AIOPS_RETENTION_DAYS = LOGS.integer(
    "MLP_AIOPS_RETENTION_DAYS", 7, 1, 3650, unit="days", help="how long the database keeps log lines"
)
AIOPS_RETENTION_MIB = LOGS.integer(
    "MLP_AIOPS_RETENTION_MIB", 4096, 16, unit="MiB", help="the total size of the log lines that the database keeps"
)
AIOPS_TRAINING_WINDOW_S = LOGS.integer(
    "MLP_AIOPS_TRAINING_WINDOW_S",
    24 * 3600,
    60,
    unit="s",
    help="how far back from the request the logs go that a log model is trained on",
)
AIOPS_TRAINING_RAM_MIB = LOGS.integer(
    "MLP_AIOPS_TRAINING_RAM", 8192, 512, unit="MiB", help="the memory that the training of a log model may use"
)
AIOPS_TRAINING_PARAMETERS: dict = {}  # overrides the model's own; tests train a small model
