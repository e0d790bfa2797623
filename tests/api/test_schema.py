import json
import re

import jsonschema
import pytest
from django.core.management import call_command
from django.test import Client
from pydantic import BaseModel

from queueops.site.documents.api_docs import described_path, described_patterns
from tests.api.conftest import ROOT


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The OpenAPI document; a warning of its generator or a violation of OpenAPI fails."""
    path = tmp_path_factory.mktemp("schema") / "schema.json"
    call_command("spectacular", "--fail-on-warn", "--validate", "--format", "openapi-json", "--file", str(path))
    return json.loads(path.read_text())


def operations(document):
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_address_is_described(document):
    described = {path.removeprefix(f"{ROOT}/") for path in document["paths"]} - {"schema/"}
    assert described == {described_path(pattern) for pattern in described_patterns()}


@pytest.mark.parametrize(
    ("path", "method", "names"),
    [("spend/", "get", {"from", "to", "group_by"}), ("model-routes/{id}/", "delete", {"reason"})],
)
def test_query_parameters_are_described(document, path, method, names):
    parameters = document["paths"][f"{ROOT}/{path}"][method]["parameters"]
    assert {parameter["name"] for parameter in parameters if parameter["in"] == "query"} == names


def test_no_two_parts_of_bodies_have_one_name():
    """The document's generator takes the first of them for all."""
    found: dict[str, dict[str, str]] = {}
    for model in models_of(BaseModel):
        parts = model.model_json_schema(mode="serialization").get("$defs", {})
        for name, part in parts.items():
            found.setdefault(name, {})[json.dumps(part, sort_keys=True)] = model.__name__
    assert len(found) > 20
    assert {name: list(parts.values()) for name, parts in found.items() if len(parts) > 1} == {}


def models_of(base):
    for model in base.__subclasses__():
        if re.match(r"(jobs\.api|jobs\.features|ratelimits\.(\w+\.)?api|queueops\.rest)\.", model.__module__):
            yield model
        yield from models_of(model)


def test_every_operation_has_examples_errors_and_both_kinds_of_keys(document):
    for name, operation in operations(document):
        if name.endswith("/schema/"):
            continue
        assert {"401", "403", "429", "500", "503"} <= set(operation["responses"]), name
        assert {"bearerKey", "headerKey"} <= {key for scheme in operation["security"] for key in scheme}, name
        answers = [answer for status, answer in operation["responses"].items() if status < "300"]
        assert any("examples" in media for answer in answers for media in answer["content"].values()), name
        if "requestBody" in operation:
            assert all("examples" in media for media in operation["requestBody"]["content"].values()), name


def test_every_example_is_what_its_schema_says(document):
    checked = 0
    for name, operation in operations(document):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media in (media for body in bodies for media in body.get("content", {}).values()):
            for example in media.get("examples", {}).values():
                schema = {**media["schema"], "components": document["components"]}
                try:
                    jsonschema.validate(example["value"], schema)
                except jsonschema.ValidationError as error:
                    raise AssertionError(f"{name}: {error.message} at {error.json_path}") from None
                checked += 1
    assert checked > 200


def test_the_document_and_its_page_are_served_without_a_key_and_from_this_host_alone(db):
    document = Client().get(f"{ROOT}/schema/", headers={"Accept": "application/json"})
    assert document.json()["openapi"].startswith("3.1")
    page = Client().get(f"{ROOT}/docs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "swagger-ui-bundle.js" in text
    assert "cdn." not in text
    assert "https://" not in text
