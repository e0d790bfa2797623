"""
Alerts as Slack, Microsoft Teams and PagerDuty want them. Pure.

Sources, read 2026-11. Slack's incoming webhooks and Block Kit: a section has at most 3,000 characters, a header 150.
Teams' workflows: a message has an adaptive card and at most 28 kB. PagerDuty's Events API v2: a summary has at most
1,024 characters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SLACK_SECTION, SLACK_HEADER, PAGERDUTY_SUMMARY = 3_000, 150, 1_024
TEAMS_TEXT, TEAMS_LINES = 1_500, 40  # a character may take twelve bytes of JSON
PAGERDUTY_SEVERITIES = {"notice": "info", "warning": "warning", "critical": "critical"}
TEAMS_COLOURS = {"notice": "accent", "warning": "warning", "critical": "attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """
    A message and its receiver.

    Attributes:
        secret: The key that signs a webhook's messages; for Slack and Teams the URL, for PagerDuty the integration key.
        about: A key that is the same in each message about one alert.
        is_acknowledged: The message says only that somebody looks after the alert.
        link: The page to look at; None: the installation's public URL is not set.
        content: The message as webhooks receive it, JSON-able.
    """

    channel: str
    target: str
    secret: str
    about: str
    is_over: bool
    is_acknowledged: bool
    severity: str
    link: str | None
    subject: str
    text: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NativeForm:
    url: str
    body: dict[str, Any]


def native_form(told: Told, message_id: str, *, pagerduty_url: str) -> NativeForm:
    """
    Return the request for the route's service.

    Args:
        message_id: The message's id, which stays the same when the message is repeated.
    """
    match told.channel:
        case "slack":
            return NativeForm(told.secret, _slack(told))
        case "teams":
            return NativeForm(told.secret, _teams(told))
        case "pagerduty":
            return NativeForm(pagerduty_url, _pagerduty(told, message_id))
    raise ValueError(told.channel)


def _slack(told: Told) -> dict[str, Any]:
    """Compose plain text: otherwise Slack would make links and mentions of words in other people's messages."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(told.subject[:SLACK_HEADER])},
        {"type": "section", "text": _plain(told.text[:SLACK_SECTION])},
    ]
    if told.link:
        button = {"type": "button", "text": _plain("Open"), "url": told.link}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": told.subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), "blocks": blocks}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _teams(told: Told) -> dict[str, Any]:
    colour = "good" if told.is_over else TEAMS_COLOURS[told.severity]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        # Use text runs, which are shown as they are: a text block would be read as Markdown.
        "body": [
            _lines([{"text": told.subject, "weight": "bolder", "color": colour}]),
            *[_lines([{"text": line}]) for line in told.text[:TEAMS_TEXT].splitlines()[:TEAMS_LINES] if line],
        ],
    }
    if told.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": told.link}]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [content]}


def _lines(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", **run} for run in runs]}


def _pagerduty(told: Told, message_id: str) -> dict[str, Any]:
    """Compose an event: all events of one alert share a key, and so one incident. A test is an incident of its own."""
    about = message_id if told.about == "test" else told.about
    event = {
        "routing_key": told.secret,
        "event_action": "resolve" if told.is_over else "acknowledge" if told.is_acknowledged else "trigger",
        "dedup_key": f"queueops/{about}",
    }
    if event["event_action"] != "trigger":
        return event
    payload = {
        "summary": told.subject[:PAGERDUTY_SUMMARY],
        "source": "queueops",
        "severity": PAGERDUTY_SEVERITIES[told.severity],
        "timestamp": told.content["timestamp"],
        "custom_details": {"text": told.text, **told.content.get("data", {})},
    }
    links = [{"href": told.link, "text": "Open in QueueOps"}] if told.link else []
    return {**event, "payload": payload, "links": links}
