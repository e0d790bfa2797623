"""Shows a forecast, and which jobs are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from queueops_client.cli.session import Session
from queueops_client.cli.words import clean, duration, plural
from queueops_client.records import Forecast, ForecastWay

SHOWN_ERRORS = 20
REFUSED = 1
VERBS = {"wait": "wait", "reject": "fail"}


def show_forecast(session: Session, told: Forecast, places: Sequence[str]) -> int:
    """Show a forecast; return the exit code, 1 if the submission would be refused."""
    if session.as_json:
        session.give(told.raw)
        return 0 if told.accepted else REFUSED
    made = plural(told.jobs["count"], "job")
    session.say(
        f"Nothing was submitted. {made} would be made."
        if told.accepted
        else f"Nothing was submitted. The batch would be refused; without what is refused of it, {made} would be made."
    )
    if told.jobs["duplicates"]:
        session.note(f"{plural(told.jobs['duplicates'], 'duplicate')} left out: their idempotency_key exists already.")
    for rows in (_models(told), _ways(told), _tokens(told), _limits(told)):
        if rows.row_count:
            session.out.print()
            session.out.print(rows)
    for price in told.missing_prices:
        way = "by batch" if price["via"] == "batch" else "live"
        session.note(clean(f"No price: {price['service']} {price['model']}, {way}."))
    for budget in told.budgets:
        whose = f" of user {budget['user_id']}" if budget["user_id"] else ""
        session.note(
            clean(f"Budget {budget['budget']}{whose} does not suffice: jobs beyond it {VERBS[budget['policy']]}.")
        )
    if told.learned is False:
        session.note("Calls like some of these are too few yet, so that the price is only bounded.")
    if told.rejected["count"]:
        tell_refused(session, told.rejected["jobs"], told.rejected["count"], places)
    return 0 if told.accepted else REFUSED


def tell_refused(session: Session, errors: Sequence[Mapping[str, Any]], count: int, places: Sequence[str]) -> None:
    """Tell which jobs are not valid, each by its place in the file."""
    session.note(f"{plural(count, 'job')} refused:")
    alike: dict[str, list[int]] = {}  # a thousand equal errors would hide a different one
    for error in errors:
        wrong = " ".join(f"{path}: {', '.join(causes)}" for path, causes in (error.get("fields") or {}).items())
        alike.setdefault(f"{error['message']} {wrong}".rstrip(), []).append(error["line"])
    for told, lines in list(alike.items())[:SHOWN_ERRORS]:
        more = f" and {len(lines) - 1:,} more" if len(lines) > 1 else ""
        session.note(f"  {places[lines[0] - 1].lower()}{more}: {told}")
    if len(alike) > SHOWN_ERRORS or count > len(errors):
        session.note("  …")


def _models(told: Forecast) -> Table:
    table = _table("kind", "service", "model", "jobs")
    for row in told.jobs["by_model"]:
        table.add_row(*map(clean, (row["kind"], row["service"], row["model"] or "", f"{row['jobs']:,}")))
    return table


def _ways(told: Forecast) -> Table:
    table = _table("way", "price", "done in", "at")
    for name, way in (("live", told.live), ("by batch", told.batch)):
        table.add_row(name, price_of(way, told.currency), *_end(way))
    return table


def _tokens(told: Forecast) -> Table:
    table = _table("tokens", "known", "expected", "reserved")
    for unit, found in told.tokens.items():
        table.add_row(unit, *(f"{found[name]:,}" for name in ("known", "expected", "reserved")))
    return table


def _limits(told: Forecast) -> Table:
    table = _table("limit", "of", "unit", "needs", "before it", "share")
    for one in told.binding:
        figures = (f"{one['needed']:,.0f}", f"{one['ahead']:,.0f}", f"{one['share']:.0%}")
        table.add_row(*map(clean, (one["limit"], one["key"], one["unit"], *figures)))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def price_of(way: ForecastWay, currency: str) -> str:
    """Return a text of what a batch costs live or by batch."""
    if way.price is None:
        return "no price"
    if way.price_range is None:
        return f"{_money(way.price)} {currency}"
    least, most = way.price_range["at_least"] or 0, way.price_range["at_most"]
    return f"{_money(least)} to {'nobody knows what' if most is None else _money(most)} {currency}"


def _money(millionths: int) -> str:
    return f"{millionths / 1_000_000:,.6f}".rstrip("0").rstrip(".")


def _end(way: ForecastWay) -> tuple[str, str]:
    if way.finish_at is None or way.seconds is None:
        return clean(way.why or "nobody knows"), ""
    return duration(way.seconds), _clock(way.finish_at)


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
