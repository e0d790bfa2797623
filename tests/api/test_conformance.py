"""S16: the API answers whatever its document allows, and whatever it does not, as the document says."""

from __future__ import annotations

import json
import random

import pytest

from tests.api.conformance import try_everything

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S16")]

FEW, MANY = 3, 200  # requests of each kind to each operation
LEAST = 20_000


@pytest.mark.matrix
def test_document_and_answers_agree():
    found = try_everything(examples=FEW, start=1)
    assert found.faults == {}, json.dumps(found.faults, indent=1)
    assert {200, 400, 401, 403, 404, 422} <= set(found.statuses)


@pytest.mark.soak
def test_document_and_answers_agree_in_many_thousand_requests():
    start = random.SystemRandom().randrange(2**32)
    print(f"seed {start}")  # noqa: T201 - to repeat it
    found = try_everything(examples=MANY, start=start)
    print(f"{found.cases} requests: {sorted(found.statuses.items())}")  # noqa: T201
    assert found.faults == {}, json.dumps(found.faults, indent=1)
    assert found.cases >= LEAST
