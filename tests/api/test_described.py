"""Answers that are not as described are found: conftest.py compares every answer in these tests."""

from __future__ import annotations

import pytest
from django.http import HttpResponse, JsonResponse
from django.test import Client

from jobs.api.views.operations import OperationList
from tests.api.conftest import Api

AS_DESCRIBED: dict[str, object] = {"next": None, "next_cursor": None, "results": []}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (JsonResponse(AS_DESCRIBED), None),
        (JsonResponse(AS_DESCRIBED | {"colour": "red"}), "'colour' was unexpected"),
        (JsonResponse({"next": None, "next_cursor": None}), "'results' is a required property"),
        (JsonResponse(AS_DESCRIBED | {"results": "none"}), "is not of type 'array'"),
        (JsonResponse(AS_DESCRIBED, status=206), "answers 206, which is not described"),
        (HttpResponse("[]", content_type="text/plain"), "with text/plain, which is not described"),
    ],
)
def test_an_answer_that_is_not_described_is_found(api: Api, monkeypatch, answer, found):
    monkeypatch.setattr(OperationList, "dispatch", lambda *arguments, **named: answer)
    if found is None:
        api.get("/operations/")
    else:
        with pytest.raises(AssertionError, match=found):
            api.get("/operations/")


def test_nothing_answers_at_an_address_that_is_not_described(db):
    assert Client().get("/api/v1/no-such/").status_code == 404
