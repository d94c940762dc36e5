"""The settings of workspaces. Used by settings.py."""

from __future__ import annotations

from kernel.environment import Section

WORKSPACES = Section("Workspaces")
WORKSPACE_URL = WORKSPACES.url(
    "MLP_WORKSPACE_URL",
    ("http", "https"),
    shown="the gateway's host, port `{base+13}`",
    help="the workspaces' gateway as users see it. With `*` in it, as in `https://*.lab.example.org`, each user has an "
    "origin of their own: `*` stands for the user ([workspaces.md](workspaces.md#origins))",
).rstrip("/")
WORKSPACE_PACKAGES = WORKSPACES.items(
    "MLP_WORKSPACE_PACKAGES",
    default="jupyterlab>=4.4,asyncssh>=2.20",
    help="requirements without commas in them, separated by commas; one of them is JupyterLab. Without asyncssh there "
    "is no SSH",
)
WORKSPACE_IDLE_MINUTES = WORKSPACES.integer(
    "MLP_WORKSPACE_IDLE_MINUTES", 120, 0, unit="min",
    help="after how long an idle workspace is stopped; users can choose less. `0`: never",
)  # fmt: skip
WORKSPACE_HOURS = WORKSPACES.integer(
    "MLP_WORKSPACE_HOURS", 0, 0, unit="h", help="how long a workspace may run; users can choose less. `0`: for ever"
)
WORKSPACE_WARN_MINUTES = WORKSPACES.integer(
    "MLP_WORKSPACE_WARN_MINUTES", 10, 0, unit="min", help="how long before the stop its owner is warned"
)
WORKSPACE_DISK_MIB = WORKSPACES.integer(
    "MLP_WORKSPACE_DISK_MIB", 20 << 10, 64, unit="MiB", help="how much one run of a workspace may add to its files"
)
