from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.dateparse import parse_date, parse_datetime

from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.values.moments import in_utc
from ratelimits.money.amounts import shown
from ratelimits.money.price_map import LoadedPrices, MapPrice, load_prices

ACTOR = "system:load_prices"
MAP_CURRENCY = "USD"


class Command(OperatorCommand):
    help = (
        "Store the prices of LiteLLM's price map (model_prices_and_context_window.json). What is new or changed holds "
        "from now on, or from --valid-from; what calls cost before stays as it is, and so does what was set by hand."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="Tell what would change, and store nothing.")
        parser.add_argument(
            "--replace", action="store_true", help="Take the map's price in place of one that was set by hand, too."
        )
        parser.add_argument(
            "--provider", action="append", default=[], help="Only this provider's, as the map names it; several times."
        )
        parser.add_argument(
            "--as",
            action="append",
            default=[],
            dest="services",
            metavar="PROVIDER=SERVICE",
            help="Jobs call this provider by that service; several times. Else by the provider's name.",
        )
        parser.add_argument("--valid-from", type=_moment, help="A day, or a time with its zone; UTC where it has none.")
        parser.add_argument(
            "--rate", type=_rate, help=f"What 1 {MAP_CURRENCY} is worth, where QUEUEOPS_CURRENCY is another."
        )

    def handle(self, *args: Any, file: Path, dry_run: bool, **options: Any) -> None:
        currency, rate = settings.QUEUEOPS.currency, options["rate"]
        if rate is None and currency != MAP_CURRENCY:
            raise CommandError(f"The map is in {MAP_CURRENCY} and QUEUEOPS_CURRENCY is {currency}: give --rate.")
        if currency == MAP_CURRENCY and rate not in (None, 1):
            raise CommandError(f"The map and QUEUEOPS_CURRENCY are both in {MAP_CURRENCY}: leave --rate out.")
        services: dict[str, list[str]] = {}
        for pair in options["services"]:
            provider, equals, service = pair.partition("=")
            if not (provider and equals and service):
                raise CommandError(f"--as {pair}: write PROVIDER=SERVICE.")
            services.setdefault(provider, []).append(service)
        loaded = load_prices(
            file,
            providers=options["provider"],
            services=services,
            dollars=rate or Decimal(1),
            valid_from=options["valid_from"],
            replace=options["replace"],
            dry_run=dry_run,
            actor=ACTOR,
        )
        _tell(loaded, currency, dry_run=dry_run)


def _tell(loaded: LoadedPrices, currency: str, *, dry_run: bool) -> None:
    def say(text: str) -> None:
        # Strangers choose the names in a map: they must not control the terminal.
        print("".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text))

    def words(price: MapPrice) -> str:
        most = f", {price.most_tokens:,} at most" if price.most_tokens else ""
        return f"{shown(price.amount, currency)} a million{most}"

    for key, rate in loaded.new:
        say(f"new: {key}: {words(rate)}")
    for key, before, rate in loaded.changed:
        say(f"changed: {key}: {words(before)} before, {words(rate)} now")
    for key, own, rate in loaded.kept:
        say(f"kept: {key}: {words(own)} was set by hand; the map has {words(rate)}")
    for name, why in loaded.left_out.items():
        say(f"left out: {name}: {why}")
    for name, notes in loaded.notes.items():
        for note in notes:
            say(f"note: {name} {note}")
    would = "would be " if dry_run else ""
    say(
        f"{len(loaded.new):,} prices {would}new, {len(loaded.changed):,} {would}changed, {loaded.same:,} as they were, "
        f"{len(loaded.kept):,} set by hand kept; {len(loaded.left_out):,} models left out"
    )
    if loaded.kept:
        say("With --replace the map's prices take their place.")


def _moment(text: str) -> datetime:
    try:
        found = parse_datetime(text)
        day = None if found else parse_date(text)
    except ValueError:
        found = day = None
    if found is None and day is not None:
        found = datetime(day.year, day.month, day.day, tzinfo=UTC)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no day and no time")
    try:
        return in_utc(found if found.tzinfo else found.replace(tzinfo=UTC))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is outside the calendar: in UTC it has no year of 1 to 9999") from error


def _rate(text: str) -> Decimal:
    try:
        rate = Decimal(text)
    except InvalidOperation:
        rate = Decimal("NaN")
    if not rate.is_finite() or rate <= 0:
        raise ArgumentTypeError(f"{text!r} is no rate")
    return rate
