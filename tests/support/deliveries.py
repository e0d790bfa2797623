"""Carrying out messages about alerts, those that wait for others, too."""

from jobs.models import Dependency
from jobs.services.operate.dependants import DependantsDuty
from jobs.testing import drain


def deliver() -> None:
    """Carry out what there is to be sent, in its order."""
    drain()
    while Dependency.objects.exists():
        DependantsDuty().do()
        drain()
