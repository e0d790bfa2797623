"""The common part of operators' commands: expected errors as one line, and asking before something is changed."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from queueops.core.errors import QueueOpsError


class OperatorCommand(BaseCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except QueueOpsError as error:
            raise CommandError(error.message) from error

    def is_sure(self, question: str, *, unasked: str) -> bool:
        """
        Ask at the terminal; anything but `yes` changes nothing.

        Args:
            unasked: What to do where nobody is there to ask.
        """
        if not sys.stdin.isatty():
            raise CommandError(f"Nobody is there to ask. {unasked}")
        if input(f"{question} Type yes: ").strip().lower() == "yes":
            return True
        self.stdout.write("Nothing was changed.")
        return False
