"""The work around a use, as steps for both the blocking and the asynchronous tracker."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID, uuid4

from queueops_client.errors import ApiError, BadConfiguration, QuotaExceeded, ServerError, TooManyRequests, Unreachable
from queueops_client.exchange import Answer, Steps
from queueops_client.retry import Retry
from queueops_client.usage.cache import RECORD_OVERAGE, REQUESTS, TOKENS, Heard, View, cost_of
from queueops_client.usage.clock import ServerClock, as_text, seconds_of
from queueops_client.usage.errors import QuotaUnavailable, TokensNotSet
from queueops_client.usage.flush import Flusher
from queueops_client.usage.outbox import Intent, Outbox, Reservation
from queueops_client.usage.policies import Rules

RESERVE = "/api/v1/usage/reserve/"
ME = "/api/v1/usage/me/"
ASK_TIMEOUT_SECONDS = 5.0
ASK_RETRY = Retry(budget_seconds=1.0, base_seconds=0.1, cap_seconds=0.5)  # a caller waits for the answer
MAX_TOKENS_OF_A_CALL = 10**9
MAX_SERVICE_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Standing:
    """A user's allowance as the server knows it; uses that still wait in outboxes are not counted."""

    user_id: UUID
    unit: str
    policy: str
    month: str
    quota: int
    used: int
    reserved: int
    overage: int
    remaining: int
    resets_at: datetime


class Usage:
    """
    One use, between its begin and its end.

    Attributes:
        event_id: Made once and known before the call: the provider may get it as an idempotency key.
        reservation_id: The reservation of the units that the server holds for the use; None: there is none.
        tokens: The tokens that the call took; the caller sets them.
    """

    __slots__ = ("_tokens", "event_id", "intent", "reservation_id", "unit")

    def __init__(self, intent: Intent) -> None:
        self.intent = intent
        self.event_id = intent.event_id
        self.reservation_id: str | None = None
        self.unit = TOKENS
        self._tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        return self._tokens

    @tokens.setter
    def tokens(self, value: int) -> None:
        self._tokens = _checked("tokens", value)

    def taken(self, *, failed: bool) -> int | None:
        """
        Return the tokens of a use; None: the call failed before it took any. The trackers' `with` statements call this
        method.
        """
        if self._tokens is not None or failed:
            return self._tokens
        estimate = self.intent.estimate or 0
        if self.unit != REQUESTS:
            warnings.warn(
                f"usage.tokens was not set; the estimate, {estimate:,}, is counted", TokensNotSet, stacklevel=3
            )
        return estimate


class Desk:
    """
    Args:
        user_id: The user of each use that names no other.
        only_user: The user of the token, who can neither act nor send for others; None: the token is a key.
    """

    def __init__(
        self, outbox: Outbox, clock: ServerClock, rules: Rules, *, user_id: str | None, only_user: str | None
    ) -> None:
        self.outbox = outbox
        self.clock = clock
        self.rules = rules
        self.flusher = Flusher(outbox, clock, only_user=only_user)
        self._user_id = user_id
        self._only_user = only_user

    def usage(self, *, estimate: int | None, service: str, user_id: UUID | str | None) -> Usage:
        """Return a new use, which is still to be admitted."""
        if len(service) > MAX_SERVICE_CHARACTERS or not service.isprintable():
            raise BadConfiguration(f"service is at most {MAX_SERVICE_CHARACTERS} printable characters.")
        if estimate is not None:
            _checked("estimate", estimate)
        return Usage(Intent(str(uuid4()), self.user(user_id), service, estimate))

    def user(self, given: UUID | str | None) -> str:
        user_id = self._user_id if given is None else str(UUID(str(given)))
        if user_id is None:
            raise BadConfiguration("A key acts for many users: name one with user_id.")
        if self._only_user not in {None, user_id}:
            raise BadConfiguration(f"The token is for user {self._only_user}; it cannot act for {user_id}.")
        return user_id

    def admit(self, usage: Usage) -> Steps[None]:
        """
        Let a use begin: if this ends without an error, the use is written down, and its call may be made.

        Raises:
            QuotaExceeded: The allowance has no room for the use.
            QuotaUnavailable: The server has to be asked, and does not answer.
            OutboxFull, OutboxFailed
            ApiError: The server refuses this token or address.
        """
        intent = usage.intent
        begun, view = self.outbox.begin(intent, self.rules.goes_ahead)
        if not begun and view is None:
            yield from self._ask_first(self.standing(intent.user_id))
            begun, view = self.outbox.begin(intent, self.rules.goes_ahead)
        usage.unit = view.unit if view else TOKENS
        if view and usage.unit == TOKENS and intent.estimate is None:
            self.outbox.drop(intent.event_id)
            raise BadConfiguration("The allowance is in tokens: give the use an estimate, at least what it may take.")
        if not begun:
            yield from self._admit_by_reservation(usage, view)

    def finish(self, usage: Usage, tokens: int | None) -> None:
        """Write down what a use took; None: nothing."""
        if tokens is None:
            self.outbox.drop(usage.event_id)
        else:
            self.outbox.complete(usage.intent, tokens=tokens, unit=usage.unit)

    def resolve(self, event_id: UUID | str, tokens: int | None) -> bool:
        """Settle a use that a crash cut off, or that was rejected; `tokens` None: nothing is to be counted."""
        if tokens is None:
            return self.outbox.discard(str(event_id))
        return self.outbox.resolve(str(event_id), tokens=_checked("tokens", tokens))

    def standing(self, user_id: str) -> Steps[Standing]:
        """Ask the server for the user's allowance, and write its answer to the cache."""
        versions = self.outbox.versions()
        params = None if self._only_user else {"user_id": user_id}
        answer = yield from self.flusher.ask("GET", ME, params=params, retry=ASK_RETRY, timeout=ASK_TIMEOUT_SECONDS)
        try:
            said: Mapping[str, Any] = answer.body
            heard = Heard.of(said)
            standing = Standing(
                **{name: said[name] for name in Standing.__dataclass_fields__ if name not in {"user_id", "resets_at"}},
                user_id=UUID(said["user_id"]),
                resets_at=datetime.fromisoformat(said["resets_at"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _not_understood(answer, error) from error
        self.outbox.settle([], {str(standing.user_id): heard}, versions=versions)
        return standing

    def _admit_by_reservation(self, usage: Usage, view: View | None) -> Steps[None]:
        try:
            try:
                yield from self._reserve(usage, key=usage.event_id)
            except QuotaExceeded:
                # This outbox may hold back the missing units: its uses may have taken less than was reserved for them.
                if not (yield from self._settle_up()):
                    raise
                # Under another key: the same key would return the earlier reservation, though it was given back.
                yield from self._reserve(usage, key=f"{usage.event_id}-again")
        except QuotaUnavailable:
            if not self.rules.may_go_on_alone(view):
                raise
            self.outbox.begin(usage.intent, _always)

    def _reserve(self, usage: Usage, *, key: str) -> Steps[None]:
        """Reserve units under the use's own key, so that a repeated request reserves only once."""
        intent = usage.intent
        versions = self.outbox.versions()
        amount = max(1, cost_of(intent.estimate or 0, usage.unit))
        asked = {"amount": amount, "idempotency_key": key, "user_id": intent.user_id}
        try:
            answer = yield from self._ask_first(
                self.flusher.ask("POST", RESERVE, json=asked, retry=ASK_RETRY, timeout=ASK_TIMEOUT_SECONDS)
            )
        except QuotaExceeded as error:
            with suppress(KeyError, TypeError, ValueError):  # an answer without these fields is a refusal, too
                self.outbox.settle([], {intent.user_id: Heard.of(error.details)}, versions=versions)
            raise
        try:
            said: Mapping[str, Any] = answer.body
            heard = Heard.of(said)
            held_until = seconds_of(said["expires_at"])
            reservation = Reservation(said["reservation_id"], said["month"], int(said["amount"]), held_until)
            free = bool(said["over_limit"])
        except (KeyError, TypeError, ValueError) as error:
            raise _not_understood(answer, error) from error
        self.outbox.settle([], {intent.user_id: heard}, versions=versions)

        def fits(view: View | None, _cost: int) -> bool:
            # The server does not know of the rows that wait here: they must fit beside the units that it granted.
            return free or view is None or view.policy == RECORD_OVERAGE or view.remaining >= 0

        begun, view = self.outbox.begin(intent, fits, reservation)
        usage.reservation_id = reservation.id
        if not begun:
            self.outbox.give_back(reservation.id, held_until=held_until)
            raise QuotaExceeded(
                "quota_exceeded",
                "What is left of the allowance is needed for uses that were not reported yet.",
                status=HTTPStatus.CONFLICT,
                details={
                    "remaining": max(0, view.remaining + amount) if view else 0,
                    "resets_at": as_text(heard.resets_at),
                    "quota": view.quota if view else None,
                },
            )

    def _settle_up(self) -> Steps[bool]:
        """Send the waiting rows and give reservations back; return whether that may have freed units."""
        if not self.outbox.releases() and not self.outbox.pending(user_id=self._only_user):
            return False
        try:
            yield from self.flusher.flush()
        except (ApiError, Unreachable):
            return False
        return True

    def _ask_first(self, steps: Steps[Any]) -> Steps[Any]:
        try:
            return (yield from steps)
        except (Unreachable, ServerError, TooManyRequests) as error:
            raise QuotaUnavailable(
                f"This use must be asked for first, and the server does not answer: {error}",
                retry_after=getattr(error, "retry_after", None),
            ) from error


def _always(_view: View | None, _cost: int) -> bool:
    return True


def _not_understood(answer: Answer, error: Exception) -> ServerError:
    return ServerError("unexpected_answer", f"The server's answer was not understood: {error!r}", status=answer.status)


def _checked(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS_OF_A_CALL:
        raise ValueError(f"{name} is a whole number from 0 to {MAX_TOKENS_OF_A_CALL:,}, not {value!r}")
    return value
