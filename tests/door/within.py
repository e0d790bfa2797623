"""The doors in the test's own process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from jobs.door.routes import save_route
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from tests.api.conftest import key_for
from tests.factories import make_project

MESSAGES: Any = [{"role": "user", "content": "Why is the sky blue?"}]
CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Door:
    """OpenAI's door as a project's key has it."""

    client: Client

    def send(self, method: str, path: str, body: str = "", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.generic(method, f"/openai/v1/{path}", body, content_type="application/json", headers=named)

    def upload(self, *lines: str) -> str:
        file = SimpleUploadedFile("in.jsonl", "\n".join(lines).encode())
        answer = self.client.post("/openai/v1/files", {"purpose": "batch", "file": file})
        assert answer.status_code == 200, answer.content
        name: str = answer.json()["id"]
        return name

    def batch(self, *lines: str, file: str = "", status: int = 200, **fields: Any) -> Any:
        name = file or self.upload(*lines)
        given = {"input_file_id": name, "endpoint": CHAT, "completion_window": "24h", **fields}
        answer = self.send("POST", "batches", json.dumps(given))
        assert answer.status_code == status, answer.content
        return answer.json()


def door_of(project: str, *, base_url: str = "https://api.example.org") -> Door:
    """With a route for OpenAI's models m-… and Anthropic's claude-…"""
    for provider, pattern in (("openai", "m-*"), ("anthropic", "claude-*")):
        name = f"{provider}-key"
        secret = seal({"api_key": "project:acme/user:robot"})
        credential, _ = Credential.objects.get_or_create(
            name=name, defaults={"service": provider, "secret": secret, "base_url": base_url}
        )
        credential.projects.add(make_project(project))
        figures = {"pattern": pattern, "provider": provider, "credential": name}
        save_route(None, figures, project_id=project, actor="user:1")
    return Door(Client(headers={"Authorization": f"Bearer {key_for(project)}"}, raise_request_exception=False))


def line(custom_id: str, body: str = "", **fields: Any) -> str:
    body = body or json.dumps({"model": "m-1", "messages": MESSAGES})
    given = {"custom_id": custom_id, "method": "POST", "url": CHAT, **fields}
    return f'{json.dumps(given)[:-1]}, "body": {body}}}'
