"""The handler that docs/how-to/batch-lane.md shows: a kind outside of llm.* that goes by batch or live."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from pydantic import BaseModel

from jobs.handlers import registry
from jobs.handlers.batch_form import BatchForm
from jobs.handlers.llm.batches.openai import OpenAiBatches
from jobs.handlers.registry import Coalesce, handler
from jobs.models import DeadLetter, Job
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from tests.jobs.features.batch_lane.conftest import DEADLINE, Lane

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = settings.BASE_DIR / "docs" / "how-to" / "batch-lane.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's code, registered as an app's would be."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "acme.handlers"})  # noqa: S102 - it is our own page


def submit(lane: Lane, count: int, **fields: Any) -> None:
    payload = {"credential": "openai-key", "model": "small-1"}
    submit_batch(
        [
            {
                "kind": "acme.classify",
                "payload": payload | {"text": f"Letter {number}"},
                "complete_by": (timezone.now() + DEADLINE).isoformat(),
                **fields,
            }
            for number in range(count)
        ],
        project_id="acme",
        actor="key:test",
    )


def test_its_jobs_go_by_batch(example, lane, sandbox):
    lane.credential()
    submit(lane, 5)
    assert set(Job.objects.values_list("via", flat=True)) == {"batch"}
    batch = lane.tend_until_closed()
    assert (batch.kind, batch.succeeded) == ("acme.classify", 5)
    assert all(Job.objects.values_list("result__answer", flat=True))
    assert [row["via"] for row in sandbox.billing()["billed"]] == ["batch"]


def test_what_has_no_time_goes_live(example, lane, sandbox):
    lane.credential()
    submit(lane, 2, complete_by=(timezone.now() + timedelta(hours=1)).isoformat())
    drain()
    assert lane.states() == ["completed"] * 2
    assert [row["via"] for row in sandbox.billing()["billed"]] == ["live"]


def test_a_line_that_is_refused_fails_with_its_status(example, lane, sandbox):
    sandbox.turn(batches={"line_error_rates": {400: 1}})
    lane.credential()
    submit(lane, 1)
    lane.tend_until_closed()
    letter = DeadLetter.objects.get()
    assert (letter.error_code, letter.http_status) == ("http_400", 400)
    assert letter.error_message.startswith("answered 400: ")


class Nothing(BaseModel):
    pass


FORM = BatchForm(
    apis={"openai": OpenAiBatches(endpoint="/v1/chat/completions")},
    api_of=lambda payload, base_url: "openai",
    compose=lambda payload, credential: {},
    read=lambda payload, body, secrets: None,  # type: ignore[arg-type,return-value]
)
WHOLE: dict[str, Any] = {
    "kind": "test.formed",
    "service": "openai",
    "payload": Nothing,
    "idempotent": True,
    "credential": lambda payload: "key",
    "model": lambda payload: "small-1",
    "batch": FORM,
}


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"batch": "openai"}, "a BatchForm, or None"),
        ({"credential": None}, "batches are of one credential and model"),
        ({"model": None}, "batches are of one credential and model"),
        ({"idempotent": False}, "with a batch form"),
        ({"coalesce": Coalesce(key=lambda payload: "all")}, "None with a batch form"),
    ],
)
def test_a_form_that_its_kind_cannot_keep_stops_the_start(monkeypatch, options, rule):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    async def formed(job: object) -> None: ...

    handler(**WHOLE)(formed)
    with pytest.raises(ImproperlyConfigured, match=rule):
        handler(**WHOLE | {"kind": "test.misformed"} | options)(formed)
