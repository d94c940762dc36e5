"""What a model is tied to: packages and the environment it was made with, versions, applications, disk space."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.utils import timezone

from apps.models import Application, Rollout
from jobs.models import EnvironmentVersion, NamedEnvironment
from kernel import storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.models import history_of
from models_app import lifecycle, trash
from models_app.models import Model, ModelVersion, RegisteredModel
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]


@pytest.fixture
def create(alice):
    """`create(name)` makes a model of alice's of three bytes."""

    def make(name: str = "net", **fields) -> Model:
        (storage.home_dir("alice") / "net.bin").write_bytes(b"abc")
        return lifecycle.create_model(user=alice, name=name, src="home/net.bin", by="test", **fields)

    return make


@pytest.fixture
def paint(alice) -> EnvironmentVersion:
    """A named environment of alice's tenant that is ready."""
    named = NamedEnvironment.objects.create(user=alice, tenant=alice.tenant, name="paint", last=1)
    return EnvironmentVersion.objects.create(
        environment=named,
        number=1,
        user=alice,
        requirements="six",
        packages="0" * 32,
        state="ready",
        pins="six==1.17.0",
    )


def fresh(model: Model) -> Model:
    return Model.objects.get(pk=model.pk)


def change(model: Model, **fields) -> Model:
    Model.objects.filter(pk=model.pk).update(**fields)
    return fresh(model)


def application(model: Model, port: int = 31000, **fields) -> Application:
    return Application.objects.create(
        user=model.user, tenant=model.tenant, model=model, name=f"calc{port}", port=port, reserved=False, **fields
    )


class TestPackages:
    def test_given_packages_are_kept_and_those_of_the_source_do_not_count(self, create):
        model = create(requirements="six==1.17.0  # why\n")
        lifecycle.note_copy(model.pk, {"a": {"size": 3}}, "other==1")
        assert (fresh(model).requirements, fresh(model).environment) == ("six==1.17.0\n", "")

    def test_packages_that_the_files_name_count_where_none_were_given(self, create):
        model = create()
        lifecycle.note_copy(model.pk, {"a": {"size": 3}}, "other==1")
        assert fresh(model).requirements == "other==1"

    @pytest.mark.parametrize("given", [{"packages": "0" * 32}, {"requirements": "six==1"}, {"environment": "paint@1"}])
    def test_one_of_them_is_enough_for_the_files_not_to_be_asked(self, create, given):
        model = change(create(), **given)
        before = fresh(model).requirements
        lifecycle.note_copy(model.pk, {"a": {"size": 3}}, "other==1")
        assert fresh(model).requirements == before

    def test_an_environment_of_the_tenant_is_used_by_its_number(self, create, paint):
        model = fresh(create(environment="paint"))
        assert (model.environment, model.environment_version) == ("paint@1", paint)
        assert "six==1.17.0" in model.requirements

    def test_packages_and_an_environment_are_refused_together(self, create, paint):
        with pytest.raises(Refused, match=r"^requirements: give either packages or an environment$"):
            create(requirements="six", environment="paint")
        with pytest.raises(Refused, match="there is no environment none"):
            create(environment="none")
        assert not Model.objects.exists()

    def test_those_of_the_check_are_recorded_with_its_result(self, create):
        model = create()
        lifecycle.note_copy(model.pk, {"a": {"size": 3}})
        lifecycle.note_packages(model.pk, "1" * 32)
        assert fresh(model).packages == "1" * 32
        lifecycle.complete(model.pk, {"format": "onnx"}, by="test", requirements="onnx==1")
        row = fresh(model)
        assert (row.state, row.format, row.requirements, row.reason) == ("ready", "onnx", "onnx==1", "")
        lifecycle.note_packages(model.pk + 1, "1" * 32)


class TestSize:
    def test_files_that_have_grown_are_reserved_again_until_they_are_copied(self, create):
        model = create()
        lifecycle.measure_again(model.pk, 5)
        assert (fresh(model).size, ResourceRequest.objects.get().rom) == (5, 5)
        change(model, copied=True)
        lifecycle.measure_again(model.pk, 7)
        change(model, copied=False, state="ready")
        lifecycle.measure_again(model.pk, 7)
        lifecycle.measure_again(model.pk + 1, 7)
        assert (fresh(model).size, ResourceRequest.objects.get().rom) == (5, 5)

    def test_more_than_is_left_is_refused(self, create):
        model = create()
        Tenant.objects.update(rom=4)
        with pytest.raises(Refused, match="rom"):
            lifecycle.measure_again(model.pk, 5)
        assert fresh(model).size == 3


class TestNames:
    def test_a_name_in_the_trash_is_told_from_one_in_use(self, create, alice):
        change(create(), state="ready")
        trash.trash(user=alice, name="net", by="test")
        with pytest.raises(Refused, match=r"^name: you already have a model named net; it is in the trash$"):
            create()

    def test_a_tenant_that_the_user_is_not_in_is_refused_before_the_source_is_read(self, create):
        Tenant.objects.create(name="other", rom=9)
        (storage.home_dir("alice") / "net.bin").unlink(missing_ok=True)
        with pytest.raises(Missing, match="no such tenant"):
            lifecycle.create_model(
                user=Model._meta.get_field("user").related_model.objects.get(username="alice"),
                name="net", src="home/none.bin", tenant="other", by="test",
            )  # fmt: skip


class TestDeletion:
    def test_the_model_of_a_version_is_deleted_with_it_whatever_its_state(self, create, alice):
        registered = RegisteredModel.objects.create(user=alice, name="churn")
        ready, new, going = change(create("a"), state="ready"), create("b"), change(create("c"), state="deleting")
        version = ModelVersion.objects.create(registered=registered, number=3, model=ready)
        with pytest.raises(WrongState, match="it is version 3 of the registered model churn; delete the version first"):
            lifecycle.delete_model(user=alice, name="a", by="test")
        version.delete()
        for pk in (ready.pk, new.pk, going.pk, 10**9):
            with transaction.atomic():
                lifecycle.delete_with_version(pk, by="test")
        assert [fresh(model).state for model in (ready, new, going)] == ["deleting"] * 3
        assert [row.outcome for row in history_of(new) if row.transition == "fail"] == ["cancelled"]
        assert fresh(new).reason == "cancelled: its version was deleted"
        assert not [row for row in history_of(going) if row.transition == "erase"]

    def test_an_application_in_the_trash_is_named_as_such_after_those_that_serve(self, create, alice):
        model = change(create(), state="ready")
        trashed = application(model, 31001, trashed=timezone.now())
        with pytest.raises(WrongState, match="the application calc31001 in the trash uses this model"):
            lifecycle.delete_model(user=alice, name="net", by="test")
        lifecycle.require_unserved(model, kept=True)
        application(model, 31002)
        for kept in (False, True):
            with pytest.raises(WrongState, match="the application calc31002 uses this model; delete it first"):
                lifecycle.require_unserved(model, kept=kept)
        Application.objects.exclude(pk=trashed.pk).delete()
        trashed.delete()
        other = application(change(create("other"), state="ready"), 31003)
        Rollout.objects.create(app=other, model=model)
        with pytest.raises(WrongState, match="the application calc31003 is moving to this model"):
            lifecycle.delete_model(user=alice, name="net", by="test")

    def test_the_checks_of_several_models_take_no_query_for_each(self, create, django_assert_num_queries):
        models = [change(create(name), state="ready") for name in ("a", "b", "c")]
        application(models[1])
        rows = list(Model.objects.order_by("pk").prefetch_related(*lifecycle.checked()))
        with django_assert_num_queries(0):
            for row in rows:
                lifecycle.require_no_version(row)
            lifecycle.require_unserved(rows[0])
            with pytest.raises(WrongState):
                lifecycle.require_unserved(rows[1])

    def test_a_deletion_from_the_trash_is_refused_once_it_was_restored(self, create, alice):
        change(create(), state="ready")
        with pytest.raises(WrongState, match="is not in the trash"):
            lifecycle.delete_model(user=alice, name="net", by="test", trashed=timezone.now())


def test_what_a_check_waits_for_is_kept_for_its_run(create):
    model = create()
    lifecycle.note_copy(model.pk, {"a": {"size": 3}})
    stale = fresh(model)
    lifecycle.note_wait(stale, "an image")
    assert fresh(model).reason == "waiting to start: an image"
    lifecycle.note_wait(fresh(model), "")
    assert fresh(model).reason == ""
    change(model, run_name="another")
    lifecycle.note_wait(stale, "an image")
    assert fresh(model).reason == ""
