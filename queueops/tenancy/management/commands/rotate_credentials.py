from typing import Any

from django.core.management.base import CommandError

from queueops.core.processes.operator_command import OperatorCommand
from queueops.tenancy.secrets.credentials import rotate


class Command(OperatorCommand):
    help = (
        "Encrypt the secret of every credential, webhook and second factor with the newest of QUEUEOPS_CREDENTIAL_KEYS."
        " Safe to repeat and to interrupt. Ends with 1 if one cannot be opened."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        done = rotate()
        print(f"{done.rotated:,} re-encrypted with the newest key, {done.current:,} had it already.")
        if done.unreadable:
            names = ", ".join(done.unreadable)
            raise CommandError(
                f"{len(done.unreadable):,} cannot be opened by any key and stay as they are: {names}. "
                "Put back the key they were encrypted with, or enter their secrets again."
            )
