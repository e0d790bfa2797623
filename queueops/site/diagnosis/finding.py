"""An answer of `manage.py doctor`, and functions to query the database."""

from dataclasses import dataclass
from enum import StrEnum

from django.db import connection


class DoctorVerdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """
    Attributes:
        advice: What to do; empty when nothing is to be done.
    """

    subject: str
    verdict: DoctorVerdict
    observation: str
    advice: str = ""


def ok(subject: str, observation: str) -> DoctorFinding:
    return DoctorFinding(subject, DoctorVerdict.OK, observation)


def warn(subject: str, observation: str, advice: str) -> DoctorFinding:
    return DoctorFinding(subject, DoctorVerdict.WARN, observation, advice)


def fail(subject: str, observation: str, advice: str) -> DoctorFinding:
    return DoctorFinding(subject, DoctorVerdict.FAIL, observation, advice)


def row_of(statement: str, *parameters: float) -> tuple[object, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row: tuple[object, ...] = cursor.fetchone()
    return row


def scalar(statement: str, *parameters: float) -> object:
    return row_of(statement, *parameters)[0]
