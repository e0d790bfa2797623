import sys
from typing import Any

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.questions import examine

COLOURS = {DoctorVerdict.OK: "green", DoctorVerdict.WARN: "yellow", DoctorVerdict.FAIL: "red"}


class Command(BaseCommand):
    help = "Look at the installation and say what to do. Ends with 1 if something fails, with 0 otherwise."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        table = Table(box=None, pad_edge=False)
        for name in ("", "what", "found", "what to do"):
            table.add_column(name, overflow="fold")  # otherwise paths and commands would be cut at the end of a line
        findings = list(examine())
        for finding in findings:
            colour = COLOURS[finding.verdict]
            table.add_row(
                f"[{colour}]{finding.verdict}[/]", *map(escape, (finding.subject, finding.observation, finding.advice))
            )
        Console().print(table)
        if any(finding.verdict is DoctorVerdict.FAIL for finding in findings):
            sys.exit(1)
