"""Traces on the administrators' pages."""

from __future__ import annotations

import pytest
from django.urls import reverse

from jobs.models import Assessment, Span, Trace
from kernel.admin_display import url_of
from mlp.operators.tests.test_admin_verbs import do
from mlp.tests.recorded_world import fill_traces

pytestmark = pytest.mark.django_db


def test_an_administrator_finds_and_deletes_a_trace(staff_client, alice):
    fill_traces(alice, "a question")
    trace = Trace.objects.get()
    found = staff_client.get(reverse("admin:jobs_trace_changelist"), {"q": trace.key}).content.decode()
    assert "a question" in found
    page = staff_client.get(url_of(trace)).content.decode()
    assert all(words in page for words in (trace.key, "alice", "2026"))
    assert do(staff_client, trace, "delete").status_code == 302
    assert not any(model.objects.exists() for model in (Trace, Span, Assessment))


def test_a_trace_of_any_clock_is_shown(staff_client, alice):
    fill_traces(alice, "a question")
    Trace.objects.update(started_ns=2**63 - 1)
    assert staff_client.get(url_of(Trace.objects.get())).status_code == 200
    Trace.objects.update(started_ns=-(2**63))
    assert staff_client.get(url_of(Trace.objects.get())).status_code == 200
