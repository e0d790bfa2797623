"""
Checks that a process has the secret key of its database.

Operators' tasks wait in the database, signed with QUEUEOPS_SECRET_KEY. A worker with another key would take them, fail
to read them and drop them. Therefore the database holds a text signed with the right key, and a process with another
key refuses to start.
"""

from __future__ import annotations

from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.db import connection

from queueops.core.database import UnsuitableDatabase
from queueops.tenancy.models import SecretKeyCanary

TEXT = "QueueOps"
SALT = "queueops.tenancy.secret_key"  # looks like a module's path, but must never change: it signs stored rows
OTHER_KEY = (
    "QUEUEOPS_SECRET_KEY is not the key that this database was set up with: its tasks and sessions could not be read. "
    "Set the key that the other hosts have. To change the key on purpose, stop every web process and worker, set the "
    "new key everywhere and run manage.py adopt_secret_key."
)


def ensure_own_secret_key() -> None:
    """
    Compare this process's key with the database's. The first process of a new database stores its own.

    Raises:
        UnsuitableDatabase: The keys differ.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [SecretKeyCanary._meta.db_table])  # noqa: SLF001 - documented
        if cursor.fetchone() == (None,):
            return  # the migration that makes the table is still to come
    if (signed := _stored()) is None:
        # If two first processes insert at once, one row is stored, and both check it.
        SecretKeyCanary.objects.bulk_create([SecretKeyCanary(signed=_signer().sign(TEXT))], ignore_conflicts=True)
        signed = _stored()
    try:
        _signer().unsign(signed or "")
    except BadSignature:
        raise UnsuitableDatabase(OTHER_KEY) from None


def adopt_secret_key() -> None:
    """Make this process's key the database's."""
    SecretKeyCanary.objects.update_or_create(defaults={"signed": _signer().sign(TEXT)})


def _stored() -> str | None:
    return SecretKeyCanary.objects.values_list("signed", flat=True).first()


def _signer() -> Signer:
    return Signer(key=settings.SECRET_KEY, salt=SALT)
