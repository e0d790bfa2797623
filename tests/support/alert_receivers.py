"""Slack, Teams and PagerDuty, which take what their documentation says, and refuse anything else as they do."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, ValidationError

MAX_TEAMS = 28 * 1024  # bytes
MAX_PAGERDUTY = 512 * 1024


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PlainText(Strict):
    type: Literal["plain_text"]
    text: Annotated[str, Field(min_length=1, max_length=3_000)]
    emoji: bool


class HeaderText(PlainText):
    text: Annotated[str, Field(min_length=1, max_length=150)]


class ButtonText(PlainText):
    text: Annotated[str, Field(min_length=1, max_length=75)]


class Header(Strict):
    type: Literal["header"]
    text: HeaderText


class Section(Strict):
    type: Literal["section"]
    text: PlainText


class Button(Strict):
    type: Literal["button"]
    text: ButtonText
    url: Annotated[str, Field(max_length=3_000)]


class Actions(Strict):
    type: Literal["actions"]
    elements: Annotated[list[Button], Field(min_length=1, max_length=25)]


class SlackMessage(Strict):
    text: Annotated[str, Field(min_length=1, max_length=40_000)]
    blocks: Annotated[
        list[Annotated[Header | Section | Actions, Field(discriminator="type")]], Field(min_length=1, max_length=50)
    ]


class TextRun(Strict):
    type: Literal["TextRun"]
    text: str
    weight: Literal["default", "lighter", "bolder"] = "default"
    color: Literal["default", "dark", "light", "accent", "good", "warning", "attention"] = "default"


class RichTextBlock(Strict):
    type: Literal["RichTextBlock"]
    inlines: Annotated[list[TextRun], Field(min_length=1)]


class OpenUrl(Strict):
    type: Literal["Action.OpenUrl"]
    title: str
    url: str


class AdaptiveCard(Strict):
    schema_: Annotated[Literal["http://adaptivecards.io/schemas/adaptive-card.json"], Field(alias="$schema")]
    type: Literal["AdaptiveCard"]
    version: Literal["1.2", "1.3", "1.4", "1.5"]
    body: Annotated[list[RichTextBlock], Field(min_length=1)]
    actions: Annotated[list[OpenUrl], Field(max_length=6)] = []


class CardAttachment(Strict):
    contentType: Literal["application/vnd.microsoft.card.adaptive"]  # noqa: N815 - Teams' name
    contentUrl: None  # noqa: N815 - as above
    content: AdaptiveCard


class TeamsMessage(Strict):
    type: Literal["message"]
    attachments: Annotated[list[CardAttachment], Field(min_length=1, max_length=1)]


class PagerDutyLink(Strict):
    href: Annotated[HttpUrl, Field(strict=False)]
    text: str


class PagerDutyPayload(Strict):
    summary: Annotated[str, Field(min_length=1, max_length=1_024)]
    source: Annotated[str, Field(min_length=1)]
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: Annotated[datetime, Field(strict=False)]
    custom_details: dict[str, Any]


class PagerDutyTrigger(Strict):
    routing_key: Annotated[str, Field(min_length=32, max_length=32)]
    event_action: Literal["trigger"]
    dedup_key: Annotated[str, Field(min_length=1, max_length=255)]
    payload: PagerDutyPayload
    links: list[PagerDutyLink] = []


class PagerDutyFollowUp(Strict):
    routing_key: Annotated[str, Field(min_length=32, max_length=32)]
    event_action: Literal["acknowledge", "resolve"]
    dedup_key: Annotated[str, Field(min_length=1, max_length=255)]


def check(channel: str, body: bytes) -> None:
    """
    Raises:
        ValidationError, ValueError: The receiver would refuse it.
    """
    if channel == "slack":
        SlackMessage.model_validate_json(body)
    elif channel == "teams":
        if len(body) > MAX_TEAMS:
            raise ValueError(f"{len(body)} bytes")
        TeamsMessage.model_validate_json(body)
    else:
        if len(body) > MAX_PAGERDUTY:
            raise ValueError(f"{len(body)} bytes")
        action = json.loads(body).get("event_action")
        (PagerDutyTrigger if action == "trigger" else PagerDutyFollowUp).model_validate_json(body)


class Receivers:
    """
    The three at one address: `/slack`, `/teams`, `/v2/enqueue`.

    Attributes:
        incidents: What became of each of PagerDuty's, by its key: `triggered`, `acknowledged`, `resolved`.
    """

    def __init__(self) -> None:
        self.taken: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.refused: list[str] = []
        self.incidents: dict[str, str] = {}

    async def take(self, request: web.Request) -> web.Response:
        channel = {"/slack": "slack", "/teams": "teams", "/v2/enqueue": "pagerduty"}[request.path]
        body = await request.read()
        if request.content_type != "application/json":
            self.refused.append(f"{channel}: {request.content_type}")
            return web.Response(status=415)
        try:
            check(channel, body)
        except (ValidationError, ValueError) as error:
            self.refused.append(f"{channel}: {error}")
            return web.Response(status=400, text="invalid")
        return await self.accept(channel, json.loads(body))

    async def accept(self, channel: str, message: dict[str, Any]) -> web.Response:
        self.taken[channel].append(message)
        if channel == "slack":
            return web.Response(text="ok")
        if channel == "pagerduty":
            self._follow(message["dedup_key"], message["event_action"])
        return web.json_response({"status": "success"}, status=202)

    def _follow(self, key: str, action: str) -> None:
        now = self.incidents.get(key, "")
        if action == "trigger" and now in ("", "resolved"):
            self.incidents[key] = "triggered"
        elif action == "acknowledge" and now == "triggered":
            self.incidents[key] = "acknowledged"
        elif action == "resolve" and now:
            self.incidents[key] = "resolved"
