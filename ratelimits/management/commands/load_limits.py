from argparse import ArgumentParser
from typing import Any

from queueops.core.processes.operator_command import OperatorCommand
from ratelimits.limits.defaults import Loaded, LoadOutcome, load_limits, names_of_defaults


class Command(OperatorCommand):
    help = "Store the default limits of some services. A limit that exists stays as it is, unless --replace is given."

    def add_arguments(self, parser: ArgumentParser) -> None:
        known = names_of_defaults()
        parser.add_argument(
            "names", nargs="*", metavar="name", help=f"Of {', '.join(known)}; without names all of them."
        )
        parser.add_argument("--replace", action="store_true", help="Give limits that exist their defaults again, too.")

    def handle(self, *args: Any, names: list[str], replace: bool, **options: Any) -> None:
        loaded = load_limits(names or names_of_defaults(), replace=replace)
        for one in loaded:
            print(_line(one))


def _line(one: Loaded) -> str:
    fields = ", ".join(one.differing)
    match one.outcome:
        case LoadOutcome.CREATED:
            return f"{one.name}: created"
        case LoadOutcome.REPLACED:
            return f"{one.name}: set to its defaults again ({fields})"
        case LoadOutcome.KEPT:
            return f"{one.name}: kept as it is; it differs from its defaults ({fields})"
        case LoadOutcome.SAME:
            return f"{one.name}: as its defaults already"
