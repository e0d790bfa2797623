"""Calls to the sandbox as a client of each provider makes them."""

import gzip
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote, urlencode

KEY = "project:p1"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        packed = self.headers.get("Content-Encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)

    def error(self) -> dict[str, Any]:
        return dict(self.json()["error"])

    def message(self) -> str:
        return str(self.error()["message"])


def ask(
    url: str, *, method: str = "GET", body: Any = None, token: str | None = None, headers: dict[str, str] | None = None
) -> Answer:
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})  # noqa: S310
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return Answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


@dataclass(frozen=True, slots=True)
class SheetsClient:
    """A client of one spreadsheet; every method is one request."""

    url: str
    spreadsheet: str = "s1"
    token: str = "project:p1/user:u1"

    def as_user(self, project: str, user: str) -> "SheetsClient":
        return SheetsClient(self.url, self.spreadsheet, f"project:{project}/user:{user}")

    def call(self, suffix: str, *, method: str = "GET", body: Any = None, headers: Any = None, **query: Any) -> Answer:
        tail = f"?{urlencode(query, doseq=True)}" if query else ""
        address = f"{self.url}/v4/spreadsheets/{self.spreadsheet}{suffix}{tail}"
        return ask(address, method=method, body=body, token=self.token, headers=headers)

    def get(self, text: str, **query: Any) -> Answer:
        return self.call(f"/values/{quote(text, safe='')}", **query)

    def update(self, text: str, values: Any, *, option: str = "RAW", **query: Any) -> Answer:
        path = f"/values/{quote(text, safe='')}"
        return self.call(path, method="PUT", body={"values": values}, valueInputOption=option, **query)

    def append(self, text: str, values: Any, *, option: str = "RAW", **query: Any) -> Answer:
        path = f"/values/{quote(text, safe='')}:append"
        return self.call(path, method="POST", body={"values": values}, valueInputOption=option, **query)

    def batch(self, *requests: Any) -> Answer:
        return self.call(":batchUpdate", method="POST", body={"requests": list(requests)})

    def write_ranges(self, ranges: dict[str, Any], *, option: str = "RAW") -> Answer:
        data = [{"range": text, "values": values} for text, values in ranges.items()]
        return self.call("/values:batchUpdate", method="POST", body={"valueInputOption": option, "data": data})


def generate(
    url: str, text: str = "hello", *, model: str = "m1", key: str = KEY, verb: str = "generateContent", **config: Any
) -> Answer:
    body = {"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": config}
    return ask(f"{url}/v1beta/models/{model}:{verb}", method="POST", body=body, headers={"x-goog-api-key": key})


def complete(url: str, text: str = "hello", *, token: str | None = KEY, **body: Any) -> Answer:
    asked = {"model": "m1", "messages": [{"role": "user", "content": text}], **body}
    return ask(f"{url}/v1/chat/completions", method="POST", body=asked, token=token)


def message(url: str, text: str = "hello", *, key: str | None = KEY, path: str = "/v1/messages", **body: Any) -> Answer:
    asked = {"model": "m1", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **body}
    headers = {"anthropic-version": "2023-06-01"} | ({} if key is None else {"x-api-key": key})
    return ask(f"{url}{path}", method="POST", body=asked, headers=headers)
