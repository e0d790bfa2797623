"""Batches as a client of OpenAI makes them, and the sandbox's account of them."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.sandbox.providers import KEY, Answer, ask

BOUNDARY = "form-boundary"
WAIT_SECONDS = 30


def wait_until(is_so: Callable[[], Any]) -> Any:
    """Return the first answer that is true."""
    end = time.monotonic() + WAIT_SECONDS
    is_last = False  # looked at once more after the end: a machine may have stood still until then
    while not is_last:
        is_last = time.monotonic() >= end
        if found := is_so():
            return found
        time.sleep(0.01)
    raise AssertionError(f"it was not so within {WAIT_SECONDS} s")


def request_line(custom_id: str, text: str = "hello", *, model: str = "m1", **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


def upload(url: str, lines: Iterable[Any], *, token: str = KEY, purpose: str = "batch") -> Answer:
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n',
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n" + "\n".join(rows) + f"\r\n--{BOUNDARY}--\r\n",
    ]
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return ask(f"{url}/v1/files", method="POST", body="".join(parts).encode(), token=token, headers=headers)


def create(url: str, file_id: str, *, token: str = KEY, **more: Any) -> Answer:
    asked = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **more}
    return ask(f"{url}/v1/batches", method="POST", body=asked, token=token)


def make(url: str, lines: Iterable[Any], **more: Any) -> str:
    """Upload lines and make a batch of them; return its id."""
    return str(create(url, upload(url, lines).json()["id"], **more).json()["id"])


def read(url: str, batch_id: str, *, token: str = KEY) -> dict[str, Any]:
    return dict(ask(f"{url}/v1/batches/{batch_id}", token=token).json())


def ended(url: str, batch_id: str) -> dict[str, Any]:
    """Return the batch once it has ended."""
    final = {"completed", "failed", "expired", "cancelled"}

    def look() -> dict[str, Any] | None:
        batch = read(url, batch_id)
        return batch if batch.get("status") in final else None

    return dict(wait_until(look))


def lines_of(url: str, file_id: str) -> list[dict[str, Any]]:
    text = ask(f"{url}/v1/files/{file_id}/content", token=KEY).body.decode()
    return [json.loads(line) for line in text.splitlines()]
