from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from queueops.core.clock import database_moment
from queueops.core.errors import QueueOpsError
from queueops.core.values.ends import read_end
from ratelimits.limits.overrides import end_override, set_override
from ratelimits.limits.validation import figure
from ratelimits.models import Limit

ACTOR = "command:override_limit"


class Command(BaseCommand):
    help = "Give one key of a limit another cap until a time, or end that before its time."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("limit", help="Its name.")
        parser.add_argument("key", help="As the counter shows it: project:acme, project:acme/user:u, or *.")
        parser.add_argument("capacity", nargs="?", type=float, help="In the limit's unit.")
        parser.add_argument("--refill-per-second", type=float, help="Of a bucket; left out: the limit's.")
        parser.add_argument(
            "--until", help=f"06:00 (the next, in {settings.TIME_ZONE}), 2026-11-29 06:00, or how long: 90m, 2h, 1d."
        )
        parser.add_argument("--end", action="store_true", help="End the one that the key has now.")
        parser.add_argument("--reason", default="", help="Kept in the audit trail.")

    def handle(self, *args: Any, limit: str, key: str, capacity: float | None, **options: Any) -> None:
        found = Limit.objects.filter(name=limit).first()
        if found is None:
            raise CommandError(f"There is no limit {limit!r}.")
        if options["end"]:
            ended = end_override(found.pk, key, actor=ACTOR, reason=options["reason"])
            print("Ended." if ended else f"{key} has no override that ends.")
            return
        if capacity is None or not options["until"]:
            raise CommandError("Say the capacity and --until, or --end.")
        try:
            ends_at = read_end(options["until"], now=database_moment(), zone=timezone.get_default_timezone())
            saved = set_override(
                found.pk,
                key,
                capacity=capacity,
                refill_per_second=options["refill_per_second"],
                ends_at=ends_at,
                actor=ACTOR,
                reason=options["reason"],
            )
        except ValueError as error:
            raise CommandError(f"--until: {error}.") from error
        except QueueOpsError as error:
            faults = [f"{name}: {fault}" for name, faults in error.fields.items() for fault in faults]
            raise CommandError(" ".join([error.message, *faults])) from error
        print(f"{limit}: {key} has {figure(capacity)} until {ends_at:%Y-%m-%d %H:%M %Z}.")
        for warning in saved.warnings:
            print(f"Mind: {warning}")
