"""Datasets, scripts and the data client in the browser."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from datasets.client_build import build
from datasets.models import Dataset, State
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, EVIL_FILE, fill, markup, visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


def stored() -> list[str]:
    return list(Dataset.objects.values_list("name", flat=True))


class TestCreate:
    def test_creating_leads_to_the_dataset(self, alice_client):
        response = alice_client.post("/datasets", {"name": "digits", "size": "1000"}, follow=True)
        assert response.redirect_chain == [("/datasets/digits", 302)]
        row = Dataset.objects.get()
        assert (row.user.username, row.size, row.state) == ("alice", 1000, "creating")

    @pytest.mark.parametrize(
        ("fields", "words"),
        few(
            [
                ({"name": "", "size": "1"}, "required"),
                ({"name": "Digits", "size": "1"}, "1 to 50 characters a to z"),
                ({"name": ".home", "size": "1"}, "not begin with a dot"),
                ({"name": "a" * 51, "size": "1"}, "1 to 50 characters a to z"),
                ({"name": "a/b", "size": "1"}, "1 to 50 characters a to z"),
                ({"name": EVIL, "size": "1"}, "1 to 50 characters a to z"),
                ({"name": "digits", "size": ""}, "required"),
                ({"name": "digits", "size": "-1"}, "must be"),
                ({"name": "digits", "size": "1.5"}, "must be a whole number"),
                ({"name": "digits", "size": "1e3"}, "must be a whole number"),
                ({"name": "digits", "size": "many"}, "must be a whole number"),
                ({"name": "digits", "size": EVIL}, "must be a whole number"),
                ({"name": "digits", "size": str(2**63)}, "must be"),
                ({"name": "digits", "size": "9" * 5000}, "must be"),
                ({"name": "digits", "size": str(2**62)}, "requested"),
                ({"name": "digits", "size": "1", "tenant": "another"}, "tenant"),
            ],
            6,
        ),
    )
    def test_wrong_fields(self, alice_client, fields, words):
        response = alice_client.post("/datasets", fields)
        assert response.status_code == 403
        assert words in visible_text(response)
        page = markup(response)
        assert page.values["name"] == fields["name"]
        assert page.values["size"] == fields["size"]
        assert page.inline == []
        assert stored() == []

    def test_a_taken_name(self, alice_client):
        alice_client.post("/datasets", {"name": "digits", "size": "1000"})
        response = alice_client.post("/datasets", {"name": "digits", "size": "5"})
        assert response.status_code == 403
        assert "you already have a dataset named digits" in visible_text(response)
        assert Dataset.objects.get().size == 1000

    def test_submitted_twice_it_is_created_once(self, alice_client):
        mark = markup(alice_client.get("/datasets")).values["mark"]
        for _ in range(2):
            response = alice_client.post("/datasets", {"name": "digits", "size": "1000", "mark": mark})
            assert (response.status_code, response["Location"]) == (302, "/datasets/digits")
        assert stored() == ["digits"]

    def test_a_resubmitted_form_with_other_values_is_validated_again(self, alice_client):
        mark = markup(alice_client.get("/datasets")).values["mark"]
        alice_client.post("/datasets", {"name": "digits", "size": "1000", "mark": mark})
        response = alice_client.post("/datasets", {"name": "Letters", "size": "1000", "mark": mark})
        assert response.status_code == 403
        assert markup(response).values["name"] == "Letters"

    def test_no_dataset_can_be_created_for_another_user(self, alice_client, bob):
        alice_client.post("/datasets", {"name": "digits", "size": "1", "user": "bob"})
        assert not Dataset.objects.filter(user=bob).exists()


class TestDetail:
    @pytest.mark.parametrize("address", few(["", "/files/one.csv"], 1))
    def test_another_users_dataset_is_not_found(self, alice_client, bob, address):
        fill(bob)
        theirs, missing = (
            alice_client.get(f"/datasets/digits{address}"),
            alice_client.get(f"/datasets/nothing{address}"),
        )
        assert theirs.status_code == missing.status_code == 404
        assert "Page not found" in visible_text(theirs)
        assert visible_text(theirs) == visible_text(missing)

    @pytest.mark.parametrize("verb", few(["delete", "end"], 1))
    def test_another_users_dataset_cannot_be_changed(self, alice_client, bob, verb):
        fill(bob)
        for name in ("digits", "coming", "broken", "nothing"):
            assert alice_client.post(f"/datasets/{name}/{verb}").status_code == 404
        assert sorted(Dataset.objects.values_list("name", "state")) == [
            ("broken", "error"),
            ("coming", "creating"),
            ("digits", "ready"),
        ]

    def test_it_is_moved_to_the_trash(self, alice_client, alice):
        put(Dataset, alice, "digits", "ready")
        response = alice_client.post("/datasets/digits/delete", follow=True)
        assert response.redirect_chain == [("/datasets", 302)]
        assert "digits moved to the trash" in visible_text(response)
        row = Dataset.objects.get(name="digits")
        assert (row.state, row.trashed is not None) == (State.READY, True)
        assert alice_client.post("/datasets/digits/delete").status_code == 404

    def test_a_dataset_being_uploaded_is_not_deleted(self, alice_client, alice):
        fill(alice)
        assert "The upload is still in progress" in visible_text(
            alice_client.post("/datasets/coming/delete", follow=True)
        )
        assert Dataset.objects.get(name="coming").state == State.CREATING

    @pytest.mark.parametrize("verb", few(["delete", "end"], 1))
    def test_only_by_post(self, alice_client, alice, verb):
        fill(alice)
        assert alice_client.get(f"/datasets/digits/{verb}").status_code == 405

    @pytest.mark.parametrize("name", few(["%00", "a%00b", "%2e%2e", "x" * 300, "%F0%9F%92%A9", "<b>"], 2))
    def test_impossible_names_are_not_found(self, alice_client, name):
        assert alice_client.get(f"/datasets/{name}").status_code == 404

    @pytest.mark.parametrize(
        "path", few(["../../bob/secret", "..%2f..%2fsecret", "link", "%00", "nothing", "folder"], 3)
    )
    def test_paths_outside_of_the_dataset_are_not_found(self, alice_client, alice, path):
        fill(alice)
        folder = storage.dataset_dir("alice", "digits")
        (storage.root() / "secret").write_text("secret")
        (folder / "link").symlink_to(storage.root() / "secret")
        (folder / "folder").mkdir()
        assert alice_client.get(f"/datasets/digits/files/{path}").status_code == 404

    def test_html_files_are_never_rendered(self, alice_client, alice):
        fill(alice)
        (storage.dataset_dir("alice", "digits") / "page.html").write_text("<script>alert(1)</script>")
        response = alice_client.get("/datasets/digits/files/page.html")
        assert response.status_code == 200
        assert response["Content-Disposition"].startswith("attachment")
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "html" not in response["Content-Type"]


class TestList:
    def test_it_is_filtered_and_paged(self, alice_client, alice, bob):
        put(Dataset, bob, "theirs", "ready")
        for number in range(60):
            put(Dataset, alice, "a" * (number + 1) if number < 50 else "b" * (number - 49), "ready")
        put(Dataset, alice, "coming", "creating")
        assert "theirs" not in visible_text(alice_client.get("/datasets"))
        second = visible_text(alice_client.get("/datasets?page=2"))
        assert " aaa " in second
        assert " bbb " not in second
        assert "coming" in visible_text(alice_client.get("/datasets?state=creating"))
        assert " aaa " not in visible_text(alice_client.get("/datasets?state=creating"))

    @pytest.mark.parametrize(
        "query", few(["page=0", "page=99", "page=x", "page=-1", "state=x", "q=%00", "q=%25", "q='"], 3)
    )
    def test_unusual_queries_are_answered(self, alice_client, query):
        assert alice_client.get(f"/datasets?{query}").status_code == 200


class TestScripts:
    def test_a_script_is_created_and_edited(self, alice_client):
        response = alice_client.post("/scripts/new", {"path": "fit.py", "text": "print(1)\r\nprint(2)"}, follow=True)
        assert response.redirect_chain == [("/scripts/edit/fit.py", 302)]
        assert (storage.home_dir("alice") / "fit.py").read_text() == "print(1)\nprint(2)"
        was = markup(response).values["was"]
        alice_client.post("/scripts/edit/fit.py", {"text": "print(3)", "was": was})
        assert (storage.home_dir("alice") / "fit.py").read_text() == "print(3)"
        late = alice_client.post("/scripts/edit/fit.py", {"text": "print(4)", "was": was})
        assert late.status_code == 403
        assert "print(4)" in visible_text(late)
        assert (storage.home_dir("alice") / "fit.py").read_text() == "print(3)"

    @pytest.mark.parametrize(
        "path", few(["", "../x.py", "/x.py", "a b.py", "x\x00.py", EVIL, "a/../b.py", "folder"], 3)
    )
    def test_illegal_script_names_are_refused(self, alice_client, home, path):
        (home / "folder").mkdir()
        response = alice_client.post("/scripts/new", {"path": path, "text": EVIL})
        assert response.status_code == 403
        assert markup(response).inline == []
        assert EVIL in visible_text(response).replace("\x00", "") or EVIL[:3] in visible_text(response)
        assert sorted(entry.name for entry in home.iterdir()) == ["folder", "train.py"]

    def test_a_script_can_be_uploaded(self, alice_client):
        file = SimpleUploadedFile("fit.py", b"print(1)")
        assert alice_client.post("/scripts", {"file": file})["Location"] == "/scripts"
        assert (storage.home_dir("alice") / "fit.py").read_bytes() == b"print(1)"
        again = alice_client.post("/scripts", {"file": SimpleUploadedFile("fit.py", b"print(2)")})
        assert again.status_code == 403
        assert "already exists" in visible_text(again)
        alice_client.post("/scripts", {"file": SimpleUploadedFile("fit.py", b"print(2)"), "replace": "1"})
        assert (storage.home_dir("alice") / "fit.py").read_bytes() == b"print(2)"

    def test_of_several_files_those_that_can_be_stored_are(self, alice_client, home):
        files = lambda: [SimpleUploadedFile(name, name.encode()) for name in ("a.py", "bad name?\x01.py", "b.py")]  # noqa: E731
        text = visible_text(alice_client.post("/scripts", {"file": files(), "path": "lib"}, follow=True))
        assert "2 files are saved." in text
        assert "lib/bad name" in text
        assert {path.name: path.read_text() for path in (home / "lib").iterdir()} == {"a.py": "a.py", "b.py": "b.py"}
        again = visible_text(alice_client.post("/scripts", {"file": files()[::2], "path": "lib/"}, follow=True))
        assert "lib/a.py: " in again
        assert "already exists" in again
        assert "path:" not in text + again
        assert "saved" not in again

    def test_an_upload_without_a_file_is_refused(self, alice_client):
        assert alice_client.post("/scripts", {"path": "fit.py"}).status_code == 403

    def test_only_own_scripts_are_listed(self, alice_client, bob):
        (storage.home_dir("bob") / "secret.py").write_text("secret")
        (storage.home_dir("alice") / "link.py").symlink_to(storage.home_dir("bob") / "secret.py")
        assert "secret.py" not in visible_text(alice_client.get("/scripts"))
        for path in ("secret.py", "link.py", "../../bob/.home/secret.py"):
            assert alice_client.get(f"/scripts/edit/{path}").status_code == 404
            assert alice_client.get(f"/scripts/file/{path}").status_code == 404
        for path in ("secret.py", "../../bob/.home/secret.py"):
            assert alice_client.post(f"/scripts/delete/{path}").status_code == 404
        assert (storage.home_dir("bob") / "secret.py").exists()

    def test_a_script_is_deleted(self, alice_client, home):
        assert alice_client.get("/scripts/delete/train.py").status_code == 405
        assert alice_client.post("/scripts/delete/train.py")["Location"] == "/scripts"
        assert not (home / "train.py").exists()

    def test_unusual_file_names_have_working_links(self, alice_client, home):
        odd = f"a #?%2e&{EVIL_FILE}"
        folder, _, _name = odd.rpartition("/")
        (home / folder).mkdir(parents=True, exist_ok=True)
        (home / odd).write_text("odd")
        links = [
            attrs["href"]
            for _tag, attrs in markup(alice_client.get("/scripts")).tags
            if "/scripts/" in attrs.get("href", "")
        ]
        odd_ones = [link for link in links if "%23" in link]
        assert odd_ones
        assert {alice_client.get(link).status_code for link in odd_ones} == {200}


class TestDataClient:
    def test_both_addresses_give_the_same_file(self):
        one, two = visitor().get("/data_client.pyz"), visitor().get("/data_client.jar")
        assert one.status_code == two.status_code == 200
        assert one.content == two.content == build()
        assert one["ETag"] == two["ETag"]
        assert one["Content-Disposition"] == 'attachment; filename="data_client.pyz"'

    def test_an_unchanged_file_is_answered_304(self):
        tag = visitor().get("/data_client.pyz")["ETag"]
        same = visitor().get("/data_client.pyz", headers={"if-none-match": tag})
        assert (same.status_code, same.content) == (304, b"")
        assert visitor().get("/data_client.pyz", headers={"if-none-match": '"old"'}).status_code == 200


class TestFolders:
    @pytest.fixture
    def pictures(self, alice):
        """A ready dataset of alice's with nested folders and images."""
        row = put(Dataset, alice, "pictures", "ready")
        folder = storage.dataset_dir("alice", "pictures")
        for path, size in {"a/one.png": 10, "a/deep/two.png": 20, "b/x.bin": 5, "top.jpg": 7, "notes.txt": 3}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(b"x" * size)
        return row

    def test_each_folder_shows_how_much_is_below_it(self, alice_client, pictures):
        words = " ".join(visible_text(alice_client.get("/datasets/pictures")).split())
        assert "5 files \xb7 45 B" in words
        assert "a/ 2 files 30 B" in words
        assert "b/ 1 file 5 B" in words
        assert "deep/ 1 file 20 B" in " ".join(visible_text(alice_client.get("/datasets/pictures?in=a")).split())

    def test_a_folder_of_too_many_files_says_so(self, alice_client, pictures, monkeypatch):
        monkeypatch.setattr("datasets.folders.MAX", 2)
        assert "at least 2 files" in " ".join(visible_text(alice_client.get("/datasets/pictures?in=")).split())

    def test_images_have_thumbnails_and_a_gallery(self, alice_client, pictures):
        listed = alice_client.get("/datasets/pictures").content.decode()
        assert "/datasets/pictures/files/top.jpg?show=1" in listed
        assert "view=gallery" in listed
        gallery = alice_client.get("/datasets/pictures?view=gallery&in=a").content.decode()
        assert "/datasets/pictures/files/a/one.png?show=1" in gallery
        assert "<table" not in gallery
        assert "<table" in alice_client.get("/datasets/pictures?view=gallery&in=b").content.decode()
