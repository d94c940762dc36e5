"""The settings of the packages that jobs bring. Used by settings.py."""

from __future__ import annotations

from kernel.environment import Section

PACKAGES = Section("Packages of jobs")
PIP_INDEX_URL = PACKAGES.url(
    "MLP_PIP_INDEX_URL",
    ("https", "http", "file"),
    shown="PyPI",
    help="where packages come from: an index, or `file:///folder` with wheels, for a platform without internet. "
    "Runs can read it, also a password in it",
)
PIP_EXTRA_INDEX_URL = PACKAGES.urls(
    "MLP_PIP_EXTRA_INDEX_URL",
    ("https", "http"),
    help="further indexes, separated by commas. The newest version of all of them is taken: a name of your own that "
    "nobody has taken on PyPI can be taken by others. Runs can read them, also a password in them",
)
PIP_PROXY = PACKAGES.url(
    "MLP_PIP_PROXY", ("http", "https"), help="the proxy by which the indexes are reached. Runs can read it"
)
PIP_TIMEOUT_S = PACKAGES.integer(
    "MLP_PIP_TIMEOUT_S",
    15,
    1,
    600,
    unit="s",
    help="how long an index may take to answer. One that does not is asked three times in all; then the "
    "installation fails",
)
NOTEBOOK_PACKAGES = PACKAGES.items(
    "MLP_NOTEBOOK_PACKAGES",
    default="papermill>=2.6,ipykernel>=6.29",
    help="what executes the notebook of a job, papermill and a kernel: requirements without commas in them, separated "
    "by commas",
)
PACKAGES_MIB = PACKAGES.integer(
    "MLP_PACKAGES_MIB", 20480, 64, unit="MiB", help="the disk space of the packages of one job"
)
PACKAGES_USER_MIB = PACKAGES.integer(
    "MLP_PACKAGES_USER_MIB",
    51200,
    64,
    unit="MiB",
    help="the disk space that environments of one user may keep; the least recently used ones are removed first",
)
PACKAGES_CACHE_MIB = PACKAGES.integer(
    "MLP_PACKAGES_CACHE_MIB",
    4096,
    0,
    unit="MiB",
    help="the disk space that the cache of one user may keep between installations; `0` keeps none",
)
PACKAGES_DAYS = PACKAGES.integer(
    "MLP_PACKAGES_DAYS", 30, 0, 3650, unit="days", help="how long an environment is kept after its last use"
)
PACKAGES_TIMEOUT_S = PACKAGES.integer(
    "MLP_PACKAGES_TIMEOUT_S", 1800, 10, unit="s", help="how long the installation of packages may take"
)
