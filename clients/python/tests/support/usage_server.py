"""The usage half of the server in memory: what it does for one project, to be called or put behind `server`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

MAX_AGE_SECONDS = 35 * 86400
MAX_AHEAD_SECONDS = 300


@dataclass
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


def refusal(status: int, code: str, **error: Any) -> Reply:
    return Reply(status, {"error": {"code": code, "message": f"It is {code}.", **error}})


@dataclass
class Reservation:
    id: str
    user_id: str
    month: str
    amount: int
    expires_at: float
    status: str = "active"


@dataclass
class UsageServer:
    quota: int = 1000
    unit: str = "tokens"
    policy: str = "strict"
    reservation_seconds: float = 300.0
    now: Callable[[], float] = time.time
    only_user: str | None = None  # whose JWT is shown; None: a key
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    received: list[str] = field(default_factory=list)  # event ids, each as often as it came
    reservations: dict[str, Reservation] = field(default_factory=dict)
    answered: dict[str, dict[str, Any]] = field(default_factory=dict)  # reservations by idempotency key
    lock: threading.RLock = field(default_factory=threading.RLock)

    def month(self, at: float) -> str:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m}"

    def resets_at(self) -> str:
        at = datetime.fromtimestamp(self.now(), UTC)
        first = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
        return first.isoformat()

    def used(self, user_id: str) -> int:
        month = self.month(self.now())
        return sum(one["amount"] for one in self.events.values() if (one["user_id"], one["month"]) == (user_id, month))

    def reserved(self, user_id: str) -> int:
        month = self.month(self.now())
        for one in self.reservations.values():
            if one.status == "active" and one.expires_at <= self.now():
                one.status = "expired"
        return sum(
            one.amount
            for one in self.reservations.values()
            if (one.user_id, one.month, one.status) == (user_id, month, "active")
        )

    def standing(self, user_id: str) -> dict[str, Any]:
        used, reserved = self.used(user_id), self.reserved(user_id)
        return {
            "user_id": user_id,
            "unit": self.unit,
            "policy": self.policy,
            "month": self.month(self.now()),
            "quota": self.quota,
            "used": used,
            "reserved": reserved,
            "overage": max(0, used - self.quota),
            "remaining": max(0, self.quota - used - reserved),
            "resets_at": self.resets_at(),
        }

    def reserve(self, given: dict[str, Any]) -> Reply:
        if replay := self.answered.get(given["idempotency_key"]):
            return Reply(201, replay, {"Idempotency-Replayed": "true"})
        user_id, amount = given["user_id"], given["amount"]
        remaining = self.quota - self.used(user_id) - self.reserved(user_id) - amount
        if remaining < 0 and self.policy == "strict":
            left = {"remaining": max(0, remaining + amount), "resets_at": self.resets_at(), "quota": self.quota}
            return refusal(409, "quota_exceeded", details=left)
        made = Reservation(str(uuid4()), user_id, self.month(self.now()), amount, self.now() + self.reservation_seconds)
        self.reservations[made.id] = made
        answer = self.answered[given["idempotency_key"]] = {
            "reservation_id": made.id,
            "user_id": user_id,
            "month": made.month,
            "amount": amount,
            "expires_at": datetime.fromtimestamp(made.expires_at, UTC).isoformat(),
            "remaining": remaining,
            "resets_at": self.resets_at(),
            "over_limit": remaining < 0,
        }
        return Reply(201, answer)

    def ingest(self, events: list[dict[str, Any]]) -> Reply:
        results = [{"event_id": event["event_id"], **self._take(event)} for event in events]
        users = {event["user_id"]: None for event in events}
        return Reply(200, {"results": results, "usage": [self.standing(user_id) for user_id in users]})

    def _take(self, event: dict[str, Any]) -> dict[str, Any]:
        self.received.append(event["event_id"])
        at = datetime.fromisoformat(event["ts"]).timestamp()
        if event["event_id"] in self.events:
            return {"status": "duplicate"}
        if self.only_user not in {None, event["user_id"]}:
            return {"status": "rejected", "reason": "foreign_user", "message": "It is another user's."}
        if at > self.now() + MAX_AHEAD_SECONDS:
            return {"status": "rejected", "reason": "from_future", "message": "It has not happened yet."}
        if at < self.now() - MAX_AGE_SECONDS:
            return {"status": "rejected", "reason": "too_old", "message": "It is too old."}
        held = self.reservations.get(event.get("reservation_id", ""))
        month = held.month if held else self.month(at)
        if held and held.status == "active":
            held.status = "confirmed"
        amount = 1 if self.unit == "requests" else event["tokens"]
        self.events[event["event_id"]] = {**event, "amount": amount, "month": month}
        room = self.quota - self.used(event["user_id"]) - self.reserved(event["user_id"])
        return {"status": "accepted" if room >= 0 else "over_limit"}

    def cancel(self, reservation_id: str) -> Reply:
        held = self.reservations.get(reservation_id)
        if held is None:
            return refusal(404, "not_found")
        released = held.status == "active"
        if released:
            held.status = "cancelled"
        left = self.standing(held.user_id)
        return Reply(
            200,
            {
                "reservation_id": held.id,
                "status": held.status,
                "released": released,
                "remaining": left["remaining"],
                "resets_at": left["resets_at"],
            },
        )

    def answer(self, asked: Any) -> Reply:
        """To a request as `server` describes it."""
        with self.lock:
            match asked.path.removeprefix("/api/v1/usage/").strip("/"):
                case "reserve":
                    return self.reserve(asked.json)
                case "ingest":
                    return self.ingest(asked.json)
                case "cancel":
                    return self.cancel(asked.json["reservation_id"])
                case "me":
                    return Reply(200, self.standing(asked.query.get("user_id") or str(self.only_user)))
            return refusal(404, "not_found")
