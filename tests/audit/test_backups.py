"""What would be left if the database were lost: the alert `backup`, and the doctor's lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from jobs.features.watches import watch_backups as watching
from jobs.features.watches.watch_backups import watch_backups
from queueops.audit.backups import last_backup, note_backup
from queueops.audit.models import AuditEntry
from queueops.core.postgres.archiver import ArchiverStanding, archiver_standing
from queueops.site.diagnosis import backups as diagnosis
from queueops.site.diagnosis.backups import examine_archive, examine_backups, examine_outcome_log
from queueops.site.diagnosis.finding import DoctorVerdict
from ratelimits.models import QuotaAlert
from tests.support.clock import MovedClock

pytestmark = pytest.mark.django_db
HOUR = 3600.0


def told() -> dict[str, str]:
    watch_backups()
    return dict(QuotaAlert.objects.filter(kind="backup", resolved_at=None).values_list("subject", "message"))


def test_a_backup_is_noted_and_one_that_is_overdue_is_told_until_the_next(settings: Any, moving_clock: MovedClock):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, alert_backup_hours=30.0)
    moving_clock.move(seconds=20 * HOUR)
    assert (last_backup().at, told()) == (None, {}), "the database was made less than 30 h ago"
    assert (examine_backups().verdict, examine_backups().observation) == (DoctorVerdict.OK, "none was noted")
    moving_clock.move(seconds=20 * HOUR)
    hours = last_backup().seconds / HOUR  # a database that is used again is some hours old
    assert 40 <= hours < 50
    assert told() == {"backup": f"No backup was noted in {hours:,.0f} h"}
    moving_clock.move(seconds=-40 * HOUR)
    call_command("note_backup", "pgBackRest, full", verbosity=0)
    assert (last_backup().by, told()) == ("pgBackRest, full", {})
    [entry] = AuditEntry.objects.filter(target="backup of the database")
    assert (entry.actor, entry.action) == ("system:backup", "back_up")
    moving_clock.move(seconds=31 * HOUR)
    assert told() == {"backup": "The last backup was noted 31 h ago (pgBackRest, full)"}
    assert examine_backups().verdict is DoctorVerdict.WARN
    settings.QUEUEOPS = replace(settings.QUEUEOPS, alert_backup_hours=0.0)
    assert told() == {}, "nobody watches"
    assert examine_backups().verdict is DoctorVerdict.OK
    note_backup("x" * 200)
    assert last_backup().by == "x" * 100


def test_a_log_that_does_not_reach_its_archive_is_told_after_minutes_and_by_the_doctor_at_once(monkeypatch: Any):
    assert not archiver_standing().is_on
    assert (examine_archive().verdict, told()) == (DoctorVerdict.OK, {})

    def stands(seconds: float, *, is_failing: bool) -> None:
        standing = ArchiverStanding(is_on=True, is_failing=is_failing, seconds=seconds, failures=4, segment="00A")
        for module in (watching, diagnosis):
            monkeypatch.setattr(module, "archiver_standing", lambda: standing)

    stands(60, is_failing=True)
    assert (examine_archive().verdict, told()) == (DoctorVerdict.FAIL, {})
    stands(600, is_failing=True)
    assert told()["archive"].startswith("PostgreSQL cannot archive its log: nothing has arrived for 10 min; 00A failed")
    assert QuotaAlert.objects.get(subject="archive").severity == "critical"
    stands(600, is_failing=False)
    assert (examine_archive().observation, told()) == ("the last segment arrived 10 min ago", {})


def test_the_doctor_says_whether_anybody_could_tell_what_had_run(settings: Any, tmp_path: Path):
    verdicts = {}
    for debug, log in ((True, None), (False, None), (False, tmp_path)):
        settings.QUEUEOPS = replace(settings.QUEUEOPS, debug=debug, outcome_log=log)
        verdicts[debug, log is None] = examine_outcome_log().verdict
    assert verdicts == {
        (True, True): DoctorVerdict.OK,
        (False, True): DoctorVerdict.WARN,
        (False, False): DoctorVerdict.OK,
    }
