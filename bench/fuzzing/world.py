"""What the fuzz finds on the platform: users, a script, a model that loads, and an object of each kind by a known name.

A janitor removes what the fuzz creates and creates again what it removes, so that the load stays bounded.
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.error
from datetime import UTC, datetime

from instance import PASSWORD, Instance

USERS = ("fuzz", "other")  # whose objects the requests name
SPARE = "spare"  # a tenant whose capacities may be changed; the users are of the tenant `default`
KEPT = "keep"  # the name of an object of each kind
NAMES = (KEPT, "x", "y", "net")
SCRIPT, PREDICTOR = "tiny.py", "predictor.py"
SCRIPT_TEXT = 'import os\nopen("out.txt", "w").write(os.environ["MLP_JOB"])\nprint("done")\n'
PREDICTOR_TEXT = "class Predictor:\n    def predict(self, inputs):\n        return inputs\n"
AGE_S = 30  # after which an object is removed
PAUSE_S = 5
MAX_USERS = 40  # of those registered by the fuzz; the oldest is deactivated


class World:
    """`call` is by the administrator. Everything a refusal may stop is tried again in the janitor's next round."""

    def __init__(self, platform: Instance):
        self.platform = platform
        self.admin = platform.as_user("admin")
        self.tokens = {"admin": self.admin.token}
        self.registered: list[str] = []
        self.ended = threading.Event()
        self.janitor = threading.Thread(target=self._keep_house, daemon=True)

    def session(self, user: str) -> str:
        """Return the cookie of a browser's session of the user."""
        _, jar = self.platform.as_user(user).browser()
        return next(cookie.value for cookie in jar if cookie.name == "sessionid")

    def make(self) -> None:
        large = "cpu=10**6, gpu=10**6, ram=10**12, rom=10**15"  # by REST a tenant has what `default` does not use
        words = f"from resources.models import Tenant; Tenant.objects.create(name='{SPARE}', {large})"
        self.platform.manage("shell", "-c", words)
        for user in USERS:
            self.admin.call("POST", "/users", {"username": user, "password": PASSWORD})
            self.furnish(user)
            self.tokens[user] = self.platform.as_user(user).token
        # What runs at the same time, at most.
        self.admin.call("PUT", "/tenants/default/limits/*", {"cpu": 3, "ram": 4096, "gpu": 0, "rom": 1 << 30})
        self.janitor.start()

    def furnish(self, user: str) -> None:
        """Put the script and the predictor into the user's home."""
        for name, text in ((SCRIPT, SCRIPT_TEXT), (PREDICTOR, PREDICTOR_TEXT)):
            self.admin.request("PUT", f"/data/{user}/.home/{name}", text.encode())

    def add(self, name: str) -> None:
        """Add a user whom the fuzz has registered: chains go on with jobs and models, which need the files."""
        self.registered.append(name)
        with contextlib.suppress(urllib.error.HTTPError):
            self.furnish(name)

    def close(self) -> None:
        self.ended.set()
        self.janitor.join(60)

    def tidy(self, age: float = AGE_S) -> int:
        """Remove what is older than `age`; return how many objects are left that should not be."""
        left = 0
        for user in (*USERS, *self.registered[-MAX_USERS:]):
            for kind in ("apps", "models", "jobs", "datasets"):
                left += sum(
                    self._remove(user, kind, row, age) for row in self._try("GET", f"/users/{user}/{kind}") or []
                )
        while len(self.registered) > MAX_USERS:
            self._try("PUT", f"/users/{self.registered.pop(0)}")
        return left

    def _remove(self, user: str, kind: str, row: dict, age: float) -> int:
        created = datetime.fromisoformat(row["created"])
        kept = row["name"] == KEPT and user == USERS[0] and not self.ended.is_set()
        if kept or (datetime.now(UTC) - created).total_seconds() < age:
            return 0
        at = f"/users/{user}/{kind}/{row['name']}"
        if kind == "datasets" and row["state"] == "creating":
            self._try("PUT", f"{at}:heartbeat", {"state": "error", "progress": row["progress"]})
        elif kind == "jobs" and row["state"] in ("creating", "running"):
            self._try("PUT", f"{at}:cancel")
        self._try("DELETE", at)
        return 1

    def _keep_house(self) -> None:
        while not self.ended.wait(PAUSE_S):
            with contextlib.suppress(OSError):
                self._restore()
                self.tidy()

    def _restore(self) -> None:
        user = f"/users/{USERS[0]}"
        if not self._try("GET", f"{user}/datasets/{KEPT}"):
            self._try("POST", f"{user}/datasets", {"name": KEPT, "size": 4})
            self._try_put(f"/data/{USERS[0]}/{KEPT}/a.txt", b"four")
            self._try("PUT", f"{user}/datasets/{KEPT}:heartbeat", {"state": "ready", "progress": 100})
        if not self._try("GET", f"{user}/jobs/{KEPT}"):
            self._try("POST", f"{user}/jobs", {"name": KEPT, "entry": SCRIPT, "cpu": 0.1, "ram": 256})
        if not self._try("GET", f"{user}/models/{KEPT}"):
            self._try("POST", f"{user}/models", {"name": KEPT, "src": f"home/{PREDICTOR}"})
        if not self._try("GET", f"{user}/apps/{KEPT}"):
            self._try("POST", f"{user}/apps", {"name": KEPT, "model_name": KEPT, "cpu": 0.1, "ram": 512})

    def _try(self, method: str, path: str, body: dict | None = None):
        """Return the answer, None for a refusal."""
        try:
            return self.admin.call(method, path, body)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return None

    def _try_put(self, path: str, data: bytes) -> None:
        with contextlib.suppress(urllib.error.HTTPError):
            self.admin.request("PUT", path, data)


def wait(done, seconds: float, what: str) -> str:
    """Return "" once `done()` is true, and after `seconds` what was waited for."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return what
        time.sleep(1)
    return ""
