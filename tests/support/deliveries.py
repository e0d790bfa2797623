"""Carrying out messages about alerts, those that wait for others, too."""

from jobs.features.dependencies.dependants import DependantsDuty
from jobs.models import Dependency
from jobs.testing import drain


def deliver() -> None:
    """Carry out what there is to be sent, in its order."""
    drain()
    while Dependency.objects.exists():
        DependantsDuty().do()
        drain()
