"""The token of a job: what it opens, for how long, and that no other text does."""

from __future__ import annotations

import pytest
from rest_framework.test import APIRequestFactory

from accounts import lifecycle as accounts
from jobs import auth
from jobs.models import Job
from kernel.errors import Refused
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

HEARTBEAT = {"state": "running", "progress": 7}


def new_job(user, name: str = "fit", **fields) -> Job:
    values = {"state": "running", "run_name": "run", **fields}
    return Job.objects.create(user=user, tenant=user.tenant, name=name, entry="x.py", **values)


@pytest.fixture
def job(alice, bob) -> Job:
    """A job between others."""
    new_job(bob)
    job = new_job(alice)
    new_job(alice, "behind")
    return job


class TestToken:
    def test_a_token_is_valid_while_its_job_runs(self, job):
        token = auth.job_token(job)
        assert token.startswith("mlp_j")
        assert auth.job_of_token(token) == job
        Job.objects.filter(pk=job.pk).update(state="finished")
        assert auth.job_of_token(token) is None

    def test_a_token_depends_on_the_jobs_nonce_and_the_secret_key(self, job, settings):
        token = auth.job_token(job)
        Job.objects.filter(pk=job.pk).update(nonce="another")
        assert auth.job_of_token(token) is None
        settings.SECRET_KEY = "another key altogether"
        assert auth.job_token(job) != token

    def test_a_token_of_an_inactive_users_job_is_invalid(self, job):
        token = auth.job_token(job)
        type(job.user).objects.filter(pk=job.user_id).update(state="NotActive")
        assert auth.job_of_token(token) is None

    @pytest.mark.parametrize("pk", [35, 36, 36**11, 36**12 - 1])
    def test_a_job_of_any_number_has_a_token(self, alice, pk):
        job = new_job(alice, pk=pk)
        assert auth.job_of_token(auth.job_token(job)) == job

    @pytest.mark.parametrize(
        "number",
        few(["", "-1", "+1", "1 ", "!", "１", "²", "0" * 12 + "1", "z" * 100], 3),
        ids=lambda number: ascii(number)[:9],
    )
    def test_an_invalid_number_is_not_looked_up(self, job, django_assert_num_queries, number):
        with django_assert_num_queries(0):
            assert auth.job_of_token(f"mlp_j{number}_x") is None

    def test_a_user_token_is_not_looked_up(self, job, django_assert_num_queries):
        token = accounts.token_of(job.user)
        with django_assert_num_queries(0):
            assert auth.job_of_token(token) is None

    def test_any_other_text_is_invalid(self, job):
        token = auth.job_token(job)
        others = [token[:-1], token + "x", token.replace("mlp_j", "mlp_u"), token[5:], f"x{token}", "", "mlp_j"]
        assert [auth.job_of_token(text) for text in others] == [None] * len(others)


class TestCalls:
    def test_it_reports_for_its_own_job(self, api, job):
        answer = api(auth.job_token(job)).call("put", "users/alice/jobs/fit:heartbeat", HEARTBEAT)
        assert answer.status_code == 200
        assert Job.objects.get(pk=job.pk).progress == 7

    def test_it_does_not_report_for_another_job_of_the_same_user(self, api, job):
        refusal = api(auth.job_token(job)).refused("put", "users/alice/jobs/behind:heartbeat", HEARTBEAT)
        assert refusal == "token: this token belongs to another job"

    def test_a_user_reports_for_any_of_the_own_jobs(self, as_alice, job):
        for name in ("fit", "behind"):
            assert as_alice.call("put", f"users/alice/jobs/{name}:heartbeat", HEARTBEAT).status_code == 200

    def test_an_invalid_token_is_refused(self, api, as_anonymous, job):
        assert api("mlp_j1_x").refused("put", "users/alice/jobs/fit:heartbeat", HEARTBEAT) == "token: not valid"
        assert "not authenticated" in as_anonymous.refused("put", "users/alice/jobs/fit:heartbeat", HEARTBEAT)

    def test_other_credentials_are_left_to_other_authenticators(self, job):
        authentication = auth.JobTokenAuthentication()
        for header in ("", "Basic YTpi", f"Bearer {accounts.token_of(job.user)}"):
            request = APIRequestFactory().get("/", HTTP_AUTHORIZATION=header)
            assert authentication.authenticate(request) is None
        request = APIRequestFactory().get("/", HTTP_AUTHORIZATION=f"Bearer {auth.job_token(job)}")
        user, holder = authentication.authenticate(request)
        assert (user, holder.job_id, holder.kind) == (job.user, job.pk, "job")
        assert authentication.authenticate_header(request) == "Bearer"

    def test_a_holder_may_act_for_its_job_alone(self, job, rf):
        request = rf.get("/")
        for credentials, allowed in ((auth.JobHolder(job.pk), True), (auth.JobHolder(job.pk + 1), False), (None, True)):
            request.auth = credentials
            if allowed:
                auth.require_own_job(request, job)
            else:
                with pytest.raises(Refused, match=r"^token: this token belongs to another job$"):
                    auth.require_own_job(request, job)


class TestNats:
    def test_the_address_has_the_jobs_credentials(self, job, settings):
        settings.EMBEDDED = {**settings.EMBEDDED, "nats": True}
        settings.NATS_URL = "nats://127.0.0.1:4222"
        assert auth.nats_address(job) == f"nats://job:{auth.job_token(job)}@127.0.0.1:4222"

    def test_an_external_server_gets_no_credentials(self, job, settings):
        settings.EMBEDDED = {**settings.EMBEDDED, "nats": False}
        assert auth.nats_address(job) is None

    def test_the_inbox_is_the_jobs_own_subject(self):
        assert auth.nats_inbox("alice", "fit") == "_INBOX_alice_fit"


class TestMark:
    def test_a_mark_is_valid_as_long_as_its_token_and_does_not_reveal_it(self, job, alice):
        token = auth.job_token(job)
        mark = auth.mark(token)
        assert auth.holds(mark)
        assert token.split("_", 2)[2] not in mark  # which may have further underscores
        Job.objects.filter(pk=job.pk).update(state="finished")
        assert not auth.holds(mark)

    def test_a_mark_of_another_jobs_token_is_invalid(self, job):
        other = auth.mark(auth.job_token(Job.objects.get(name="behind")))
        assert auth.holds(other)
        assert not auth.holds(f"job:{job.pk}:{other.rpartition(':')[2]}")

    def test_a_users_token_has_a_mark_too(self, alice):
        token = accounts.token_of(alice)
        mark = auth.mark(token)
        assert not mark.startswith("job:")
        assert auth.holds(mark)
        accounts.rotate_token(user=alice, by="test")
        assert not auth.holds(mark)
