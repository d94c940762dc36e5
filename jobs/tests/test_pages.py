"""Jobs in the browser: the list, the submit form, one job."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from datasets.models import Dataset
from jobs.models import Job, State
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, fill, markup, visible_text, visitor
from mlp.tests.tiers import few

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


def form(**fields) -> dict:
    return {"name": "fit", "entry": "train.py", "runtime": "python", "cpu": "1", "gpu": "0", "ram": "512", **fields}


def hrefs(response, part: str) -> list[str]:
    return [attrs["href"] for _, attrs in markup(response).tags if part in attrs.get("href", "")]


def value(response, name: str) -> str:
    return markup(response).values[name]


WRONG = [
    ("name", "", "required"),
    ("name", "Fit", "1 to 50 lowercase letters"),
    ("name", "a" * 51, "1 to 50 lowercase letters"),
    ("name", EVIL, "1 to 50 lowercase letters"),
    ("name", "taken", "you already have a job named taken"),
    ("entry", "", "required"),
    ("entry", "nothing.py", "the script nothing.py does not exist"),
    ("entry", "../x.py", "without '..'"),
    ("entry", "/etc/passwd", "relative path"),
    ("entry", EVIL, "relative path"),
    ("runtime", "java", "must be one of"),
    ("cpu", "0", "must be"),
    ("cpu", "11", "must be"),
    ("cpu", "nan", "finite"),
    ("cpu", "inf", "finite"),
    ("cpu", "many", "must be a number"),
    ("cpu", "9", "requested 9"),
    ("gpu", "-1", "must be"),
    ("gpu", "17", "must be"),
    ("gpu", "0.5", "whole number"),
    ("gpu", EVIL, "whole number"),
    ("ram", "99", "must be"),
    ("ram", "10001", "must be"),
    ("ram", "9" * 5000, "must be"),
    ("retries", "11", "must be"),
    ("retries", "x", "whole number"),
    ("args", "'open", "quotation mark is not closed"),
    ("args", "x\x00y", "valid text"),
    ("args", EVIL, "quotation mark is not closed"),
    ("env", "NOVALUE", "NAME=value"),
    ("env", "1A=x", "must match"),
    ("env", "MLP_TOKEN=x", "reserved for the platform"),
    ("env", EVIL, "NAME=value"),
    ("datasets", "nothing", "no ready dataset"),
    ("datasets", EVIL, "a to z"),
    ("tenant", "another", "tenant"),
]


def problems_of(response, typed: dict, words: str) -> list:
    """Return what is wrong with the refusal of a form: it says why, and shows what was typed."""
    page, problems = markup(response), []
    if response.status_code != 403:
        problems.append(response.status_code)
    if words not in visible_text(response):
        problems.append(f"without {words}")
    if page.inline:
        problems.append(page.inline)
    for name in ("name", "entry", "cpu", "gpu", "ram", "args"):
        shown = page.values.get(name)
        if shown is None or shown.replace("\x00", "\ufffd") != typed[name].replace("\x00", "\ufffd"):
            problems.append(f"{name} is shown as {shown}")
    return problems


class TestSubmit:
    def test_submitting_leads_to_the_job(self, alice_client, alice):
        put(Dataset, alice, "digits", "ready")
        labels = {"project": "vision", "tags": "baseline, team=x", "group": "sweep"}
        fields = form(args="--epochs 3 'two words'", datasets=["digits"], cpu="0.5", retries="2", **labels)
        response = alice_client.post("/jobs", fields, follow=True)
        assert response.redirect_chain == [("/jobs/fit", 302)]
        job = Job.objects.get()
        assert (job.user, job.entry, job.args) == (alice, "train.py", ["--epochs", "3", "two words"])
        assert (job.datasets, job.cpu, job.retries) == (["digits"], 0.5, 2)
        assert (job.project.name, job.tags, job.group) == ("vision", {"baseline": "", "team": "x"}, "sweep")
        for address in ("/jobs?from=fit", "/jobs?new=1&project=vision"):
            field = re.search(r'<input\s+id="project".*?>', alice_client.get(address).content.decode(), re.DOTALL)
            assert 'value="vision"' in field.group(0), address

    def test_environment_variables_are_accepted(self, alice_client):
        alice_client.post("/jobs", form(env="ONE=1\r\n\r\nTWO=a=b \n"))
        assert Job.objects.get().env == {"ONE": "1", "TWO": "a=b "}

    def test_two_fields_suffice(self, alice_client):
        assert alice_client.post("/jobs", {"name": "fit", "entry": "train.py"})["Location"] == "/jobs/fit"

    def test_wrong_fields(self, alice_client, alice):
        put(Job, alice, "taken", "creating")
        wrong = {}
        for field, typed, words in WRONG:
            values = {"args": "--kept", "retries": "1", field: typed}
            response = alice_client.post("/jobs", form(**values))
            if problems := problems_of(response, form(**values), words):
                wrong[field, typed[:100]] = problems
            if field == "env" and typed not in visible_text(response):
                wrong[field, typed] = "it is not shown again"
        assert wrong == {}
        assert list(Job.objects.values_list("name", flat=True)) == ["taken"]

    def test_another_users_dataset_cannot_be_used(self, alice_client, bob):
        put(Dataset, bob, "theirs", "ready")
        assert alice_client.post("/jobs", form(datasets=["theirs"])).status_code == 403
        assert not Job.objects.exists()

    def test_submitted_twice_it_is_created_once(self, alice_client):
        mark = value(alice_client.get("/jobs"), "mark")
        for _ in range(2):
            response = alice_client.post("/jobs", form(mark=mark))
            assert (response.status_code, response["Location"]) == (302, "/jobs/fit")
        assert Job.objects.count() == 1

    def test_without_its_mark_a_second_submission_is_refused(self, alice_client):
        assert alice_client.post("/jobs", form()).status_code == 302
        assert alice_client.post("/jobs", form()).status_code == 403
        assert Job.objects.count() == 1

    def test_a_resubmitted_form_with_other_values_is_validated_again(self, alice_client):
        mark = value(alice_client.get("/jobs"), "mark")
        alice_client.post("/jobs", form(mark=mark))
        response = alice_client.post("/jobs", form(mark=mark, name="second", ram="1"))
        assert response.status_code == 403
        assert value(response, "name") == "second"

    @pytest.mark.parametrize("mark", few(["x" * 5000, "\x00", EVIL], 1))
    def test_invalid_marks_are_ignored(self, alice_client, mark):
        assert alice_client.post("/jobs", form(mark=mark)).status_code == 302
        assert markup(alice_client.post("/jobs", form(mark=mark, name=""))).inline == []

    def test_an_earlier_job_fills_the_form(self, alice_client, alice):
        fill(alice, evil=True)
        response = alice_client.get("/jobs?from=done")
        assert value(response, "entry") == "train.py"
        assert value(response, "name") == "doneb"
        again = {name: value(response, name) for name in ("name", "entry", "args", "cpu", "gpu", "ram", "retries")}
        assert alice_client.post("/jobs", again)["Location"] == "/jobs/doneb"
        assert Job.objects.get(name="doneb").args == Job.objects.get(name="done").args

    def test_another_users_job_does_not_fill_the_form(self, alice_client, bob):
        fill(bob)
        Job.objects.update(args=["--secret"])
        assert "--secret" not in alice_client.get("/jobs?from=done").content.decode()


class TestDetail:
    def test_another_users_job_is_not_found(self, alice_client, bob):
        fill(bob)
        theirs, missing = alice_client.get("/jobs/fit"), alice_client.get("/jobs/nothing")
        assert theirs.status_code == missing.status_code == 404
        assert visible_text(theirs) == visible_text(missing)

    @pytest.mark.parametrize("verb", ["cancel", "delete"])
    def test_another_users_job_cannot_be_changed(self, alice_client, bob, verb):
        fill(bob)
        before = sorted(Job.objects.values_list("name", "state"))
        for name in ("fit", "done", "broken", "nothing"):
            assert alice_client.post(f"/jobs/{name}/{verb}").status_code == 404
        assert sorted(Job.objects.values_list("name", "state")) == before

    def test_staff_see_their_own_jobs_only(self, staff, alice, home):
        """Operators see other users' jobs in the admin; the pages show everybody's own."""
        fill(alice)
        assert visitor(staff).get("/jobs/fit").status_code == 404

    @pytest.mark.parametrize("verb", ["cancel", "delete"])
    def test_only_by_post(self, alice_client, alice, verb):
        fill(alice)
        assert alice_client.get(f"/jobs/fit/{verb}").status_code == 405

    def test_it_is_cancelled_and_deleted(self, alice_client, alice):
        fill(alice)
        assert alice_client.post("/jobs/fit/cancel")["Location"] == "/jobs/fit"
        assert Job.objects.get(name="fit").reason == "cancelled"
        assert "has already ended" in visible_text(alice_client.post("/jobs/fit/cancel", follow=True))
        assert alice_client.post("/jobs/fit/delete")["Location"] == "/jobs"
        assert Job.objects.get(name="fit").trashed
        page = alice_client.get("/jobs/fit")
        assert "in the trash" in visible_text(page)
        assert alice_client.post("/runs/act", {"do": "delete", "job": "fit"})["Location"] == "/jobs"
        assert Job.objects.get(name="fit").state == State.DELETING

    def test_impossible_names_are_not_found(self, alice_client):
        names = ("%00", "a%00b", "%2e%2e", "x" * 300, "%F0%9F%92%A9", "<b>")
        statuses = {name: alice_client.get(f"/jobs/{name}").status_code for name in names}
        assert statuses == dict.fromkeys(names, 404)

    def test_the_page_shows_its_command_and_log(self, alice_client, alice):
        fill(alice)
        words = visible_text(alice_client.get("/jobs/broken"))
        for part in ("train.py", "--epochs", "epoch 1", "exit code 1", "ckpt/model.pt", "digits"):
            assert part in words

    @pytest.mark.parametrize(
        "log", few([b"", b"\xff\xfe\x00", b"x" * 300_000, "é".encode() * 100_000, b"\x1b[31mred\x1b[0m"], 2)
    )
    def test_unusual_logs_are_shown(self, alice_client, alice, log):
        fill(alice)
        (storage.job_dir("alice", "fit") / "log" / "job.log").write_bytes(log)
        response = alice_client.get("/jobs/fit")
        assert response.status_code == 200
        assert len(response.content) < 200_000
        assert b"\x1b" not in response.content

    def test_its_files_are_linked(self, alice_client, alice):
        fill(alice)
        folder = storage.job_dir("alice", "fit") / "out" / "a #?%2e&;"
        folder.mkdir(parents=True)
        (folder / "x.txt").write_text("odd")
        links = hrefs(alice_client.get("/jobs/fit"), "/files/")
        assert len(links) == 3
        kept = [hrefs(alice_client.get(link), "/artifacts/") for link in links]
        assert [alice_client.get(link).status_code for (link,) in kept] == [200, 200, 200]
        assert b"odd" in b"".join(b"".join(alice_client.get(link)) for (link,) in kept)


class TestArtifacts:
    @pytest.mark.parametrize(
        ("name", "data", "seen"),
        few(
            [
                ("notes.txt", EVIL.encode(), EVIL),
                ("page.html", b"<b>bold</b>", "<b>bold</b>"),
                ("rows.csv", b"name,value\nalpha,1\n", "alpha"),
                ("empty.txt", b"", "The file is empty."),
                ("weights.pt", b"\0\1\2", "No preview for this type"),
                ("out.log", b"\x1b[31m<b>bad</b>\x1b[0m\n 1 %\r 2 %\n", "<b>bad</b> 2 %"),
                ("a b/c #1?.txt", b"odd place", "odd place"),
            ],
            3,
        ),
    )
    def test_a_file_is_displayed(self, alice_client, alice, name, data, seen):
        fill(alice)
        path = storage.job_dir("alice", "fit") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        page = alice_client.get(f"/jobs/fit/files/{quote(name)}")
        assert page.status_code == 200
        assert seen in visible_text(page)
        assert alice_client.get(f"/jobs/fit/pictures/{quote(name)}").status_code == 404

    def test_a_picture_is_shown_here_and_in_the_list(self, alice_client, alice):
        fill(alice)
        (storage.job_dir("alice", "fit") / "curve.png").write_bytes(PNG)
        images = [attrs["src"] for tag, attrs in markup(alice_client.get("/jobs/fit")).tags if tag == "img"]
        sources = [source for source in images if not source.startswith("/static/")]
        assert sources == ["/jobs/fit/pictures/curve.png"]
        assert b"/jobs/fit/pictures/curve.png" in alice_client.get("/jobs/fit/files/curve.png").content
        picture = alice_client.get(sources[0])
        assert (picture["Content-Type"], b"".join(picture)) == ("image/png", PNG)
        assert "sandbox" in picture["Content-Security-Policy"]

    def test_paths_that_are_not_its_files_are_not_found(self, alice_client, alice):
        fill(alice)
        (storage.job_dir("alice", "fit") / "link.txt").symlink_to("/etc/passwd")
        for path in ("nothing.txt", "../fit/out", "log", "%2e%2e/x", "link.txt", "a%00b"):
            assert alice_client.get(f"/jobs/fit/files/{path}").status_code in {301, 302, 404}, path
            assert alice_client.get(f"/jobs/fit/pictures/{path}").status_code in {301, 302, 404}, path

    def test_another_users_files_are_not_found(self, alice_client, bob):
        fill(bob)
        (storage.job_dir("bob", "fit") / "mine.txt").write_text("x")
        assert alice_client.get("/jobs/fit/files/mine.txt").status_code == 404
        assert alice_client.get("/jobs/fit/pictures/mine.txt").status_code == 404

    def test_output_files_never_run_in_our_origin(self, alice_client, alice):
        fill(alice)
        for name in ("page.html", "page.svg", "page.xhtml", "page.js", "page", "page.pdf"):
            (storage.job_dir("alice", "fit") / name).write_text("<html><script>alert(1)</script></html>")
            response = alice_client.get(f"/api/v1/users/alice/jobs/fit/artifacts/{name}")
            assert response.status_code == 200, name
            assert response["Content-Disposition"].startswith("attachment"), name
            assert response["X-Content-Type-Options"] == "nosniff", name
            policy = response["Content-Security-Policy"]
            assert "script-src 'self'" in policy or "sandbox" in policy, name

    def test_the_log_never_runs_in_our_origin(self, alice_client, alice):
        fill(alice, evil=True)
        response = alice_client.get("/api/v1/users/alice/jobs/fit/log")
        assert response["Content-Type"] == "text/plain; charset=utf-8"
        assert response["X-Content-Type-Options"] == "nosniff"


class TestList:
    def test_the_list_shows_own_jobs_only(self, alice_client, bob):
        fill(bob)
        assert "done" not in visible_text(alice_client.get("/jobs"))

    def test_it_is_filtered(self, alice_client, alice):
        fill(alice)
        for state, there, not_there in (("running", "fit", "done"), ("error", "broken", "fit")):
            hrefs = [attrs.get("href") for _tag, attrs in markup(alice_client.get(f"/jobs?state={state}")).tags]
            assert f"/jobs/{there}" in hrefs
            assert f"/jobs/{not_there}" not in hrefs

    def test_unusual_queries_are_answered(self, alice_client):
        queries = ("page=0", "page=99", "page=x", "state=x", "q=%00", "from=%00", "q=%25", "dataset=x")
        statuses = {query: alice_client.get(f"/jobs?{query}").status_code for query in queries}
        assert statuses == dict.fromkeys(queries, 200)
