"""Staff with some of Django's permissions only: the admin shows what these allow, and nothing else gives them more than
an ordinary user has. What an administrator does in the same words shows that each line asks for something.
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse

from accounts import lifecycle, tokens
from accounts.models import Token, User
from conftest import Api
from kernel.admin_display import url_of
from kernel.errors import Refused
from mlp.operators.tests.test_admin_verbs import buttons, do
from mlp.tests.attack.test_scopes import dav
from mlp.tests.attack.test_tokens import attacked, snapshot
from mlp.tests.page_world import visitor

pytestmark = pytest.mark.django_db

# (call, who may make it): `reader` may view jobs in the admin, `keeper` may do everything there with accounts and
# tokens, `admin` has all rights. A path below /api/v1 is asked by token, another one as a page or of the data service.
LINES = (
    ("GET users", "admin"),
    ("GET users/alice", "admin"),
    ("GET users/alice/jobs", "admin"),
    ("GET users/alice/jobs/fit", "admin"),
    ("GET users/alice/jobs/fit/log", "admin"),
    ("GET users/alice/jobs/fit/metrics", "admin"),
    ("PUT users/alice/jobs/fit:cancel", "admin"),
    ("DELETE users/alice/datasets/fit", "admin"),
    ("GET users/alice/datasets", "admin"),
    ("GET users/alice/models", "admin"),
    ("GET users/alice/apps/fit/log", "admin"),
    ("GET users/alice/tokens", "admin"),
    ("PUT resource_request:confirm", "admin"),
    ("PROPFIND /data/alice", "admin"),
    ("GET /u/alice/jobs/fit", "admin"),
    ("GET /u/alice/datasets/fit", "admin"),
    ("GET /admin/", "admin reader keeper"),
    ("GET /admin/jobs/job/", "admin reader"),
    ("GET /admin/accounts/user/", "admin keeper"),
    ("GET /admin/accounts/token/", "admin keeper"),
    ("GET /admin/accounts/user/add/", "admin"),
    ("GET /admin/accounts/token/add/", "admin"),
    ("GET /admin/datasets/dataset/", "admin"),
    ("GET /admin/settings/", "admin"),
    ("GET /admin/audit/", "admin"),
)
BODIES = {"resource_request:confirm": {"id": "none", "applier": "jm"}}


@pytest.fixture(scope="module")
def attacked_files(keep_files):
    return keep_files(attacked)


def limited(name: str, **wanted) -> User:
    """Make a user who may enter the admin, with the permissions that the conditions select."""
    user = User.objects.get(username=name)
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(**wanted))
    return User.objects.get(pk=user.pk)


@pytest.fixture
def people(attacked_files, make_user, staff) -> dict[str, User]:
    attacked_files()
    for name in ("reader", "keeper"):
        make_user(name)
    return {
        "admin": staff,
        "reader": limited("reader", codename="view_job", content_type__app_label="jobs"),
        "keeper": limited("keeper", content_type__app_label="accounts"),
    }


def may(user: User, call: str) -> bool:
    method, _, address = call.partition(" ")
    text = lifecycle.token_of(user)
    if address.startswith("/data/"):
        return dav(text, method, address).status_code == 207
    if address.startswith("/"):
        return visitor(user).get(address).status_code == 200
    answer = Api(text).call(method.lower(), address, BODIES.get(address))
    assert answer.status_code in (200, 403), (call, answer.content)
    return answer.status_code == 200


@pytest.mark.parametrize("person", ["reader", "keeper", "admin"])
def test_outside_of_the_admin_a_permission_gives_nothing(people, person):
    before = snapshot()
    for call, who in LINES:
        assert may(people[person], call) == (person in who.split()), call
    assert snapshot() == before or person == "admin"


def test_who_manages_accounts_gives_nobody_more_rights_than_they_have(people, alice):
    keeper = visitor(people["keeper"])
    for user in (alice, people["keeper"], people["admin"]):
        assert buttons(keeper, user) == set()
        for verb in ("operator", "password", "factors", "takeback", "deregister"):
            words = {"password": "new horse staple", "again": "new horse staple"}
            assert do(keeper, user, verb, **words).status_code == 403, (user, verb)
    given = {"name": "mine", "user": people["admin"].pk}
    assert keeper.post(reverse("admin:accounts_token_add"), given).status_code == 403
    with pytest.raises(Refused, match="only administrators"):
        lifecycle.create_service_token(user=people["keeper"], name="mine", by="test")
    assert not Token.objects.filter(kind=Token.Kind.SERVICE).exists()
    assert keeper.get(url_of(alice)).status_code == 200


def test_a_service_token_ends_with_all_rights(people):
    text = lifecycle.create_service_token(user=people["admin"], name="mine", by="test")
    assert tokens.lookup(text) is not None
    lifecycle.set_staff(username="oscar", staff=False, by="test")
    limited("oscar", codename="view_job", content_type__app_label="jobs")
    assert tokens.lookup(text) is None
