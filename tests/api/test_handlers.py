"""The list of kinds."""

from __future__ import annotations

from typing import Any

from pydantic_core import core_schema

from jobs.handlers import registry
from jobs.handlers.registry import RunningJob, handler
from tests.api.conftest import Api


class WithoutSchema:
    """A payload's type whose author's code fails when its JSON Schema is asked for."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, of: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(lambda given: given)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, of: Any) -> dict[str, Any]:
        raise LookupError("no such thing")


def test_a_kind_whose_schema_cannot_be_told_hides_no_other(api: Api, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))

    @handler(kind="test.odd", service="test", payload=WithoutSchema)
    async def odd(job: RunningJob[WithoutSchema]) -> None: ...

    listed = {one["kind"]: one for one in api.get("/handlers/").json()["results"]}
    assert listed["test.odd"]["payload_schema"] == {}
    assert listed["http.request"]["payload_schema"]["properties"]["url"]
