"""
Rows whose names are unique in a project: a form reports a taken name at its field, even if a faster request took it.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, models, transaction
from psycopg.errors import UniqueViolation

NOT_UNIQUE = "unique_together"  # Django's error code for the constraint, which it reports for the whole row

Faults = dict[str, list[str]]


def faults_of(row: models.Model, **options: Any) -> Faults:
    """
    Return what is wrong with a row, by field.

    Args:
        options: Arguments of `full_clean`.
    """
    found: Faults = {}
    try:
        row.full_clean(**options)
    except ValidationError as error:
        for field, faults in error.error_dict.items():
            for fault in faults:
                if field == NON_FIELD_ERRORS and fault.code == NOT_UNIQUE:
                    found |= _taken(row)
                else:
                    found.setdefault(field, []).extend(fault.messages)
    return found


def save_named(row: models.Model, **options: Any) -> Faults:
    """
    Save a row in the caller's transaction, which stays usable. Waits for a transaction that stores the same name.

    Returns:
        Empty; or, if the name was taken after the check, the fault to show. Then nothing was saved.
    """
    try:
        with transaction.atomic():
            row.save(**options)
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        return _taken(row)
    return {}


def _taken(row: models.Model) -> Faults:
    name = row._meta.verbose_name  # noqa: SLF001 - documented
    return {"name": [f"Another {name} of the project has this name."]}
