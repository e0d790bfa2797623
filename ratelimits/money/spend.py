"""The ledger of calls and what they cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.fields.json import KT

from queueops.audit import trail
from queueops.core.sql import plain_array, run_sql, text_array
from queueops.core.values.reasons import clean_reason
from ratelimits.alerts.alerts import Opening, open_all, resolve
from ratelimits.costs import INPUT_TOKENS, OUTPUT_TOKENS, Usage
from ratelimits.models import Price, QuotaAlert, Spend, Via

from .amounts import lacks_usage
from .prices import forget, price_list, price_of

FILLED_AT_ONCE = 1_000
# Each is a column of the ledger, too; the tier is its `via`.
_COUNTED = tuple(one.name for one in fields(Usage) if one.name != "tier")
MAX_SUBJECT = 300  # characters
MAX_PROJECTS_UNPRICED = 1_000  # projects that one alert names


class Payer(NamedTuple):
    """The project, user and batch for which a call is made."""

    project: str
    user_id: UUID | None
    batch_id: UUID | None


class MadeCall(NamedTuple):
    """
    A call that has ended.

    Attributes:
        token: The fencing token of its claim.
        at: When it was claimed, seconds since 1970 by the database's clock.
        usage: The use as its provider counted it.
    """

    job_id: UUID
    token: int
    payer: Payer
    provider: str
    model: str
    at: float
    usage: Usage
    via: str = Via.LIVE


class Unpriced(NamedTuple):
    """
    A call without a price.

    Attributes:
        units: The units of which it needs a price, as far as they are known.
    """

    provider: str
    model: str
    via: str
    project: str
    units: frozenset[str] = frozenset()

    @property
    def subject(self) -> str:
        """The subject of the alert."""
        return f"{self.provider}/{self.model}/{self.via}"[:MAX_SUBJECT]


def record_calls(
    calls: Sequence[MadeCall],
    *,
    bounds: Mapping[tuple[UUID, int], int] | None = None,
    locked: Sequence[int] | None = None,
) -> None:
    """
    Write calls and what they cost, in the caller's transaction. A call in the ledger stays as it is, unless
    its cost was unknown. A live call that its provider served by another tier has that tier's prices.

    A model without a price gets an alert, and the row waits for `price_unpriced`. If a provider left out what a call
    used, the call counts as unknown, at the most that it can have cost.

    Args:
        bounds: The most that each call can cost, by job and token, where that is known.
        locked: See `write_ledger`.
    """
    if not calls:
        return
    once = {(call.job_id, call.token): _served(call) for call in calls}
    priced = [(call, _price(call)) for call in once.values()]
    known = bounds or {}
    untold = {
        call for call, money in priced if money is None and (_left_out(call) or (call.job_id, call.token) in known)
    }
    write_ledger(
        [
            (call, Spend.Kind.UNKNOWN, known.get((call.job_id, call.token)))
            if call in untold
            else (call, Spend.Kind.CALL, money)
            for call, money in priced
        ],
        locked=locked,
    )
    if missing := [_unpriced(call) for call, money in priced if money is None and not _left_out(call)]:
        tell_missing(missing)


def write_ledger(rows: Sequence[tuple[MadeCall, str, int | None]], *, locked: Sequence[int] | None = None) -> None:
    """
    Write calls, each with its kind and what it cost in micro-units, in the caller's transaction.

    Args:
        locked: The periods of budgets that the transaction has locked; None: none yet. See `end_holds`.
    """
    calls = [call for call, _, _ in rows]
    run_sql(
        "ratelimits",
        "insert_spend",
        {
            "jobs": plain_array([call.job_id for call in calls]),
            "tokens": plain_array([call.token for call in calls]),
            "kinds": text_array([kind for _, kind, _ in rows]),
            "projects": text_array([call.payer.project for call in calls]),
            "users": plain_array([call.payer.user_id for call in calls]),
            "batches": plain_array([call.payer.batch_id for call in calls]),
            "providers": text_array([call.provider for call in calls]),
            "models": text_array([call.model for call in calls]),
            "vias": text_array([str(call.via) for call in calls]),
            "times": plain_array([call.at for call in calls]),
            "inputs": plain_array([call.usage.input_tokens for call in calls]),
            "cached": plain_array([call.usage.cached_tokens for call in calls]),
            "written": plain_array([call.usage.written_tokens for call in calls]),
            "kept": plain_array([call.usage.written_1h_tokens for call in calls]),
            "outputs": plain_array([call.usage.output_tokens for call in calls]),
            "sums": plain_array([call.usage.tokens for call in calls]),
            "requests": plain_array([call.usage.requests for call in calls]),
            "money": plain_array([money for _, _, money in rows]),
            "periods": None if locked is None else list(locked),
        },
    )


def tell_missing(calls: Sequence[Unpriced]) -> None:
    """Open an alert for each provider, model and way of these calls, with the projects whose calls had no price."""
    named = {call.subject: call for call in calls}
    units, projects = _told(named, "units"), _told(named, "projects")
    for call in calls:
        units[call.subject] |= call.units
        if len(projects[call.subject]) < MAX_PROJECTS_UNPRICED:
            projects[call.subject].add(call.project)
    open_all([_opening(named[one], sorted(units[one]), sorted(projects[one])) for one in sorted(named)])


def _told(subjects: Collection[str], figure: str) -> dict[str, set[str]]:
    """
    Return a figure of the open alerts. Otherwise an alert would end while its calls still have no price, and forget the
    projects of earlier calls.
    """
    told = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.MISSING_PRICE, subject__in=subjects, resolved_at=None)
    known = {alert.subject: set(alert.figures.get(figure, ())) for alert in told}
    return {subject: known.get(subject, set()) for subject in subjects}


def _opening(call: Unpriced, units: Sequence[str], projects: Sequence[str]) -> Opening:
    rates = price_list(call.provider, call.model, via=call.via).at(datetime.now(UTC))
    lacks = " and ".join(unit.replace("_", " ") for unit in units if unit not in rates) if rates else ""
    what = f"no price of {lacks}" if lacks else "no price"
    return Opening(
        QuotaAlert.Kind.MISSING_PRICE,
        call.subject,
        QuotaAlert.Severity.WARNING,
        f"{call.provider} {call.model or 'without a model'} has {what} "
        f"{Via(call.via).label}: "
        "what its calls cost is not known. Add it, or load a price map",
        {
            "provider": call.provider,
            "model": call.model,
            "via": call.via,
            "projects": list(projects),
            "units": list(units),
        },
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """`filled`: calls that have a price now; `left`: calls that were looked at and still have no price."""

    filled: int
    left: int


def price_unpriced(*, actor: str, reason: str = "", most: int = 1_000_000) -> Filled:
    """
    Price the calls that had no price, by the prices valid at their time. Calls that had a price stay as they are.

    Not to be called inside a transaction: each FILLED_AT_ONCE calls have a transaction of their own.
    """
    forget()
    filled = left = after = 0
    while filled + left < most:
        with transaction.atomic(durable=True):
            rows = list(Spend.objects.filter(money=None, pk__gt=after).order_by("pk")[:FILLED_AT_ONCE])
            prices = [price_of(row.provider, row.model, usage_of(row), via=row.via, at=row.at) for row in rows]
            found = [(row.pk, money) for row, money in zip(rows, prices, strict=True) if money is not None]
            ids, money = plain_array([pk for pk, _ in found]), plain_array([one for _, one in found])
            priced = run_sql("ratelimits", "price_spend", {"ids": ids, "money": money}) if found else []
        filled, left = filled + len(priced), left + len(rows) - len(priced)
        if len(rows) < FILLED_AT_ONCE:
            break
        after = rows[-1].pk
    trail.record(
        actor=actor,
        action="price_spend",
        target="spend without a price",
        after={"filled": filled, "left": left},
        moved=filled,
        reason=clean_reason(reason),
    )
    resolve_priced()
    return Filled(filled, left)


def resolve_priced() -> int:
    """Resolve the alerts of models that have prices now. For house-keeping."""
    alerts = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.MISSING_PRICE, resolved_at=None)
    # Without this, many models that nobody gives a price would keep the alerts of others open.
    named = alerts.annotate(provider=KT("figures__provider"), model=KT("figures__model"))
    some = named.filter(Exists(Price.objects.filter(provider=OuterRef("provider"), model=OuterRef("model"))))
    now = datetime.now(UTC)
    priced = [alert.pk for alert in some[:FILLED_AT_ONCE] if _is_priced(alert.figures, now)]
    return resolve(QuotaAlert.objects.filter(pk__in=priced)) if priced else 0


def _is_priced(figures: Mapping[str, Any], now: datetime) -> bool:
    """Whether each unit that calls used has a price; alerts from before an upgrade name no units."""
    rates = price_list(figures["provider"], figures["model"], via=figures["via"]).at(now)
    return bool(rates) and all(unit in rates for unit in figures.get("units", ()))


def usage_of(row: Spend) -> Usage:
    """The use that a row of the ledger states."""
    return Usage(**{name: getattr(row, name) for name in _COUNTED})


def _served(call: MadeCall) -> MadeCall:
    """Return the call with the way that its answer states, where it was sent live."""
    return call._replace(via=Via(call.usage.tier)) if call.usage.tier and call.via == Via.LIVE else call


def _left_out(call: MadeCall) -> bool:
    """Whether a call's model has prices, but its provider did not say how much was used."""
    at = datetime.fromtimestamp(call.at, UTC)
    return lacks_usage(call.usage, price_list(call.provider, call.model, via=call.via).at(at))


def _unpriced(call: MadeCall) -> Unpriced:
    counts = {INPUT_TOKENS: call.usage.input_tokens, OUTPUT_TOKENS: call.usage.output_tokens}
    used = frozenset(unit for unit, count in counts.items() if count)
    return Unpriced(call.provider, call.model, str(call.via), call.payer.project, used)


def _price(call: MadeCall) -> int | None:
    at = datetime.fromtimestamp(call.at, UTC)
    return price_of(call.provider, call.model, call.usage, via=call.via, at=at)
