"""A host with another secret key takes nothing, and says why."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.core.signing import Signer
from django_q.models import OrmQ
from django_q.tasks import async_task

from jobs.models import Executor
from queueops.access.services import invitations, known_browsers
from queueops.assistant import confirmations
from queueops.core.database import UnsuitableDatabase
from queueops.site.diagnosis.access import examine_secret_key
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.models import SecretKeyCanary
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key
from tests.support.processes import free_port, manage

pytestmark = pytest.mark.proves("P7")

OTHER = "another key, long enough to be one of fifty characters"


@pytest.mark.parametrize("command", ["web", "qcluster"])
@pytest.mark.django_db(transaction=True)
def test_a_process_with_another_key_does_not_start_and_loses_no_task(command: str):
    ensure_own_secret_key()
    async_task("jobs.cluster.settle_holds")
    environ = {"QUEUEOPS_SECRET_KEY": OTHER, "QUEUEOPS_PORT": str(free_port())}
    with manage(command, environ=environ) as process:
        assert process.process.wait(120) == 1
        assert "QUEUEOPS_SECRET_KEY is not the key that this database was set up with" in process.output
        assert "Traceback" not in process.output
    assert OrmQ.objects.count() == 1


@pytest.mark.django_db
def test_the_first_key_is_the_databases_until_another_is_adopted(settings):
    ensure_own_secret_key()
    assert examine_secret_key().verdict is DoctorVerdict.OK
    settings.SECRET_KEY = OTHER
    with pytest.raises(UnsuitableDatabase, match="adopt_secret_key"):
        ensure_own_secret_key()
    assert examine_secret_key().verdict is DoctorVerdict.FAIL
    async_task("jobs.cluster.settle_holds")
    worker = Executor.objects.create(host="h", pid=1, process_started_at=0, cluster_pid=1, slots=1)
    with pytest.raises(CommandError, match="1 workers still run"):
        call_command("adopt_secret_key")
    worker.delete()
    call_command("adopt_secret_key")
    ensure_own_secret_key()
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
def test_a_database_of_an_earlier_version_is_known_by_its_canary():
    """The salt is stored with the row: another one, as after a rename of the module, locks everybody out."""
    signed = Signer(key=settings.SECRET_KEY, salt="queueops.tenancy.secret_key").sign("QueueOps")
    SecretKeyCanary.objects.update_or_create(defaults={"signed": signed})
    ensure_own_secret_key()
    assert [invitations.InvitationTokens.key_salt, known_browsers.SALT, confirmations.SALT] == [
        "queueops.access.invitation",
        "queueops.access.known_browser",
        "queueops.assistant.confirmation",
    ]
