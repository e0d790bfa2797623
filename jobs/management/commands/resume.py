import re
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from jobs.models import PauseSwitch
from jobs.services.operate.pauses import resume_everything, resume_scope
from queueops.core.processes.operator_command import OperatorCommand
from ratelimits.limits import ramps

ACTOR = "system:command"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> float:
    """Seconds of `90s`, `10m` or `1.5h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text, re.ASCII)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no duration; write it as 90s, 10m or 2h.")
    return float(found[1]) * UNITS[found[2]]


class Command(OperatorCommand):
    help = "End the pause of everything: at once, or with a ramp, which opens the limits bit by bit."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--over", type=duration, metavar="TIME", help="let the share grow from 5 %% to all: 90s, 10m, 2h"
        )
        what.add_argument("--hold", action="store_true", help="keep the ramp at the share that it has reached")
        what.add_argument("--continue", action="store_true", dest="go_on", help="let a held ramp grow on")
        what.add_argument("--end", action="store_true", help="open every limit whole at once")
        parser.add_argument("--reason", default="", help="kept in the audit trail")

    def handle(self, *args: Any, **options: Any) -> None:
        told = {"actor": ACTOR, "reason": options["reason"]}
        print(_carry_out(options, told))


def _carry_out(options: dict[str, Any], told: dict[str, str]) -> str:
    if options["end"]:
        ramps.end_ramp(**told)
        return "The ramp has ended: every limit is open."
    if options["hold"]:
        return f"The ramp is held at {ramps.hold_ramp(**told).percent} %."
    if options["go_on"]:
        shown = ramps.continue_ramp(**told)
        return f"The ramp grows on from {shown.percent} %, and ends at {shown.ends_at:%H:%M:%S} UTC."
    if options["over"] is not None:
        resume_everything(over_seconds=options["over"], **told)
        return "Work starts, with 5 % of every limit. The admin's page Ramp shows the share, and holds or ends it."
    if not PauseSwitch.objects.filter(scope=PauseSwitch.Scope.GLOBAL).exists():
        return "Everything was not paused. What is paused by itself is on the admin's page Pauses."
    resume_scope(PauseSwitch.Scope.GLOBAL, "", **told)
    return "Work starts, with every limit open."
