"""`make demo`: tries every part of the product on real data on the running platform, and says where to watch.

It registers a user as the browser does, uploads the digits with the data client through nginx, submits a training job,
follows its metrics over the websocket, checks that the output is kept and the resources are free again, searches for a
better learning rate (demo_sweep.py), serves the model (demo_serve.py), lets AIOps find a fault in the logs
(demo_aiops.py), runs a script by the command line client, one with a package of its own, and starts a workspace
(demo_client.py). Each step waits while the platform restarts; the exit code is 1 when a step fails.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.cookiejar
import json
import os
import random
import re
import string
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import demo_aiops
import demo_client
import demo_serve
import demo_sweep
import websocket

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120
STEPS = 15
RETRIED = {429, 500, 502, 503, 504}


class Failed(Exception):
    """A step that failed; the message says why."""


class Platform:
    """The running platform as users reach it: pages with a cookie jar, REST with a token."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self.token = ""
        self.cookies = http.cookiejar.CookieJar()
        self.browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    @staticmethod
    def failed(words: str) -> Failed:
        return Failed(words)

    def page(self, path: str, form: dict | None = None) -> tuple[str, str]:
        """Return (final URL, text) of a page, fetched as a browser does; a form is sent with the page's CSRF token."""
        if form is not None:
            _, text = self.page(path)
            field = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text)
            if not field:
                raise Failed(f"{path}: the form has no CSRF token")
            form = {**form, "csrfmiddlewaretoken": field.group(1)}
        data = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self.url + path, data, {"Referer": self.url + path})
        try:
            answer = patiently(lambda: self.browser.open(request, timeout=30))
        except urllib.error.HTTPError as refusal:
            answer = refusal  # also a page: the form again, with the reason
        with answer:
            return answer.geturl(), answer.read().decode()

    def call(self, method: str, path: str, body=None, basic: tuple[str, str] | None = None):
        """Return (status, decoded answer) of a REST call. Faults are retried; a refusal is returned."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if basic:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(basic).encode()).decode()
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", data, headers, method=method)
        try:
            with patiently(lambda: urllib.request.urlopen(request, timeout=30)) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.loads(refusal.read() or b"{}")

    def must(self, method: str, path: str, body=None, **options):
        status, answer = self.call(method, path, body, **options)
        if status >= 400:
            raise Failed(f"{method} {path}: {status} {answer.get('msg', answer)}")
        return answer


def patiently(action):
    """Repeat the action while the platform is down or faulty, for at most PATIENCE_S seconds."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except urllib.error.HTTPError as problem:
            if problem.code not in RETRIED or time.monotonic() > end:
                raise
        except (OSError, http.client.HTTPException) as problem:
            if time.monotonic() > end:
                raise Failed(f"the platform does not answer: {problem}")
        time.sleep(0.5)


def say(text: str) -> None:
    print(text, flush=True)


def step(number: int, text: str) -> None:
    say(f"\n[{number}/{STEPS}] {text}")


def register(platform: Platform, username: str, password: str) -> None:
    form = {"username": username, "password": password, "action": "register"}
    end = time.monotonic() + PATIENCE_S
    while True:
        url, _ = platform.page("/regist_login", form)
        if urllib.parse.urlsplit(url).path.startswith("/index"):
            break
        # If the server was killed between the commit and the answer, the account exists, and a login will do.
        form["action"] = "login" if form["action"] == "register" else "register"
        if time.monotonic() > end:
            raise Failed("registering did not lead to the index page")
    platform.token = platform.must("GET", f"users/{username}/token", basic=(username, password))


def client(platform: Platform, username: str, folder: Path, *arguments: str) -> None:
    """Run the platform's data client, downloaded from the platform."""
    program = folder / "data_client.pyz"
    if not program.exists():
        with patiently(lambda: urllib.request.urlopen(platform.url + "/data_client.pyz", timeout=30)) as answer:
            program.write_bytes(answer.read())
    environment = {
        **os.environ,
        "MLP_URL": platform.url,
        "MLP_USER": username,
        "MLP_TOKEN": platform.token,
        "HOME": str(folder),
    }
    if subprocess.run([sys.executable, str(program), *arguments], env=environment, check=False).returncode:
        raise Failed(f"data client: {' '.join(arguments)} failed")


def submit(platform: Platform, username: str, epochs: int, slow: float) -> str:
    body = {
        "name": "digits",
        "entry": "train.py",
        "runtime": "torch",
        "datasets": ["digits"],
        "args": ["--dataset", "digits", "--epochs", str(epochs), "--slow", str(slow)],
        "cpu": 1,
        "ram": 1500,
        "retries": 5,
    }
    status, answer = platform.call("POST", f"users/{username}/jobs", body)
    if status == 403 and "already" in answer.get("msg", ""):
        return "digits"  # the answer to our first POST was lost, not the job
    if status != 201:
        raise Failed(f"submitting the job: {status} {answer.get('msg', answer)}")
    return answer["name"]


def bar(percent: int, row: dict, width: int = 30) -> str:
    done = "#" * (width * max(0, percent) // 100)
    return (
        f"\r  [{done:<{width}}] {percent:3d} %  epoch {row['epoch']:>2}  "
        f"accuracy {row['accuracy']:.3f}  loss {row['loss']:.3f} "
    )


def follow(platform: Platform, username: str, job: str) -> list[dict]:
    """Read the job's metrics from the websocket until it closes normally, and return them in order."""
    address = platform.url.replace("http", "ws", 1) + f"/api/v1/users/{username}/job_metrics/{job}"
    end = time.monotonic() + 600
    while time.monotonic() < end:
        rows: list[dict] = []
        with contextlib.suppress(websocket.WebSocketException, OSError):
            link = websocket.create_connection(address, timeout=60, subprotocols=["bearer", platform.token])
            with contextlib.closing(link):
                while True:
                    code, data = link.recv_data()
                    if code == websocket.ABNF.OPCODE_CLOSE:
                        if int.from_bytes(data[:2], "big") == 1000:
                            print(flush=True)
                            return rows
                        break
                    if code == websocket.ABNF.OPCODE_TEXT:
                        rows.append(json.loads(data))
                        print(bar(rows[-1]["progress"], rows[-1]), end="", flush=True)
        time.sleep(1)  # the connection was lost; the next one starts with the whole history
    raise Failed("the job did not end within ten minutes")


def check_end(platform: Platform, username: str, job: str, rows: list[dict]) -> None:
    row = platform.must("GET", f"users/{username}/jobs/{job}")
    if row["state"] != "finished":
        raise Failed(f"the job ended in {row['state']}: {row['reason']}")
    if not rows or rows[-1]["accuracy"] < 0.9:
        raise Failed(f"the metrics from the websocket are missing or too low: {rows[-1:]}")
    paths = {entry["path"] for entry in platform.must("GET", f"users/{username}/jobs/{job}/artifacts")}
    if not {"ckpt/model.pt", "log/job.log"} <= paths:
        raise Failed(f"output is missing; found only {sorted(paths)}")
    say(f"  finished after {row['attempt']} attempt(s): accuracy {rows[-1]['accuracy']:.3f}, {len(paths)} files kept")


def wait_for_resources(platform: Platform, ram_before: int) -> None:
    end = time.monotonic() + 60
    while True:
        tenant = platform.must("GET", "tenants/default")
        if tenant["ram_inuse"] <= ram_before:
            break
        if time.monotonic() > end:
            raise Failed(f"resources are not free again: {tenant['ram_inuse']} MiB of RAM in use, {ram_before} before")
        time.sleep(0.5)
    say(f"  in use now: {tenant['cpu_inuse']:g} of {tenant['cpu']:g} CPU, {tenant['ram_inuse']} MiB of RAM")


def walk(platform: Platform, epochs: int, slow: float, steps: int) -> None:
    username = "demo" + "".join(random.choices(string.ascii_lowercase, k=6))
    password = "".join(random.choices(string.ascii_letters + string.digits, k=16))
    with tempfile.TemporaryDirectory(prefix="mlp-demo-") as temporary:
        folder = Path(temporary)
        step(1, f"register the user {username} as the browser does")
        register(platform, username, password)
        say(f"  see {platform.url}/index (user {username}, password {password})")
        ram_before = platform.must("GET", "tenants/default")["ram_inuse"]

        step(2, "create the dataset `digits` and upload it with the data client, through nginx")
        making = [
            os.environ.get("MLP_RUN_PYTHON") or sys.executable,
            str(HERE / "digits" / "make_dataset.py"),
            str(folder / "digits"),
        ]
        subprocess.run(making, check=True)
        client(platform, username, folder, "upload", str(folder / "digits"), "--name", "digits")
        client(platform, username, folder, "script", "put", str(HERE / "digits" / "train.py"), "train.py")
        if steps >= 6:
            job = train(platform, username, epochs, slow, ram_before)
        if steps >= 7:
            step(7, f"search for its best learning rate: a sweep of {demo_sweep.TRIALS} trials")
            demo_sweep.search(platform, username, say)
        if steps >= 10:
            serve(platform, username, job, folder)
        if steps >= 12:
            find_the_fault(platform, username, folder)
        if steps >= 15:
            work_interactively(platform, username, folder)


def train(platform: Platform, username: str, epochs: int, slow: float, ram_before: int) -> str:
    """Run the training job and check everything it leaves behind; return its name."""
    step(3, "submit the training job")
    job = submit(platform, username, epochs, slow)
    say(f"  see {platform.url}/jobs/{job}")
    step(4, "follow its metrics over the websocket, as the index page does")
    rows = follow(platform, username, job)
    step(5, "check that it finished and its output is kept")
    check_end(platform, username, job, rows)
    step(6, "check that its resources are free again")
    wait_for_resources(platform, ram_before)
    return job


def serve(platform: Platform, username: str, job: str, folder: Path) -> None:
    step(8, "create a model from its output")
    demo_serve.make_model(platform, username, job, say)
    step(9, "deploy it as an application")
    base = demo_serve.deploy(platform, username, say)
    step(10, "send it a request through the application gateway")
    line = (folder / "digits" / "test" / "digits_x.csv").read_text().splitlines()[0]
    truth = int((folder / "digits" / "test" / "digits_y.csv").read_text().splitlines()[0])
    digit = demo_serve.ask(platform, base, [float(number) for number in line.split(",")], say)
    if digit != truth:
        raise Failed(f"wrong answer: the picture shows a {truth}")
    demo_serve.clean_up(platform, username)


def find_the_fault(platform: Platform, username: str, folder: Path) -> None:
    password = demo_aiops.operator_password()
    if password is None:
        say("\nSkipping AIOps: the administrator's password cannot be read (set MLP_ADMIN_PASSWORD).")
        return
    operator = Platform(platform.url)
    operator.token = operator.must("GET", "users/admin/token", basic=("admin", password))
    step(11, "AIOps: watch a job and the platform's components, and learn what their logs usually say")

    def put(text: str, path: str) -> None:
        (folder / "part").write_text(text)
        client(platform, username, folder, "script", "put", str(folder / "part"), path)

    demo_aiops.begin_job(platform, username, put)
    demo_aiops.watch(platform, operator, username, say)
    step(12, "AIOps: a job fails in a way that its log has never shown, and the line is found")
    demo_aiops.break_job(put)
    demo_aiops.provoke(platform, operator, username, say)


def work_interactively(platform: Platform, username: str, folder: Path) -> None:
    step(13, "run a script of this machine with the command line client")
    mlp = demo_client.Client(platform, username, folder)
    demo_client.run_a_script(mlp, say)
    step(14, "run one that names a package: an environment is made for it")
    can_install = demo_client.use_a_package(mlp, say)
    step(15, "start a workspace: JupyterLab beside the user's data")
    if can_install:
        demo_client.open_a_workspace(platform, username, say)


def main() -> int:
    base = int(os.environ.get("MLP_PORT_BASE") or 30000)
    host = os.environ.get("MLP_HOST") or "127.0.0.1"
    parser = argparse.ArgumentParser(description="Tries every part of the product on the running platform.")
    parser.add_argument("--url", default=os.environ.get("MLP_URL") or f"http://{host}:{base + 1}")
    parser.add_argument("--epochs", type=int, default=12, help="how often the training sees all pictures")
    parser.add_argument(
        "--slow", type=float, default=1.0, help="seconds to pause after each epoch, to have time to watch"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=STEPS,
        help="how far to go: 2 ends after the upload, 6 after the training, 7 after the sweep, 10 after serving, "
        "12 after AIOps",
    )
    options = parser.parse_args()
    try:
        walk(Platform(options.url), options.epochs, options.slow, options.steps)
    except (Failed, subprocess.CalledProcessError, urllib.error.URLError) as problem:
        print(f"\ndemo failed: {problem}", file=sys.stderr)
        return 1
    say("\nThe demo succeeded. The administration pages are at " + options.url + "/admin/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
