"""What `check`, `doctor` and every start look at: each thing that would open a project to others is found."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from django.core.checks import Tags, run_checks
from django.db import DatabaseError, connection, transaction

from jobs.models import Job, JobEvent, PauseSwitch, Webhook
from queueops.audit.models import AuditEntry, ProjectAuditEntry
from queueops.core.database import UnsuitableDatabase
from queueops.site.diagnosis.database import examine_row_security
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy import checks, database_roles
from queueops.tenancy.models import Credential, CredentialSetting, Project
from queueops.tenancy.scope import ANONYMOUS_ROLE, acting_for, reading_for
from queueops.tenancy.secrets.credentials import without_batches
from ratelimits.limiter.estimates import Alike, record_actuals
from ratelimits.models import AlertRoute, CostEstimate
from tests.factories import make_batch, make_job, make_project, make_route, make_webhook
from tests.support.undone import undone

pytestmark = pytest.mark.django_db

VIEW_OF_EVERYTHING = """
CREATE OR REPLACE VIEW jobs_auditentry_of_project AS
SELECT id, project_id, actor, action, target, before, after, moved, reason, address, created_at FROM jobs_auditentry
"""
HARMS = {
    "a superuser": ("ALTER ROLE queueops_api SUPERUSER", "have the rights of"),
    "no policy for it": ("ALTER ROLE queueops_api BYPASSRLS", "have the rights of queueops_api"),
    "a member of the service": ("GRANT queueops_service TO queueops_api", "queueops_service"),
    "a member of a superuser": ("CREATE ROLE q_root SUPERUSER; GRANT q_root TO queueops_api", "q_root"),
    "an owner": (
        "GRANT CREATE ON SCHEMA public TO queueops_api; ALTER TABLE jobs_job OWNER TO queueops_api",
        "have the rights of queueops_api",
    ),
    "no ENABLE": ("ALTER TABLE jobs_job DISABLE ROW LEVEL SECURITY", "changed on jobs_job"),
    "no FORCE": ("ALTER TABLE tenancy_issuer NO FORCE ROW LEVEL SECURITY", "changed on tenancy_issuer"),
    "no policy": ("DROP POLICY api ON jobs_webhookdelivery", "changed on jobs_webhookdelivery"),
    "one policy more": (
        "CREATE POLICY open ON ratelimits_usageevent TO queueops_api USING (true)",
        "changed on ratelimits_usageevent",
    ),
    "a policy for another": ("ALTER POLICY service ON jobs_batch TO PUBLIC", "changed on jobs_batch"),
    "a table of people": ("GRANT SELECT ON auth_user TO queueops_api", "may use auth_user"),
    "a column of people": ("GRANT SELECT (password) ON auth_user TO queueops_api", "may use auth_user"),
    "a table for all": ("GRANT SELECT ON django_session TO PUBLIC", "may use django_session"),
    "a table for nobody": ("GRANT SELECT ON jobs_deadletter TO queueops_anonymous", "may use jobs_deadletter"),
    "a hand for nobody": (
        "DROP POLICY anonymous ON jobs_job; CREATE POLICY anonymous ON jobs_job TO queueops_anonymous USING (true)",
        "changed on jobs_job",
    ),
    "a name for nobody": (
        "GRANT queueops_api TO queueops_anonymous; ALTER ROLE queueops_api BYPASSRLS",
        "queueops_api",
    ),
    "a view of everything": (
        VIEW_OF_EVERYTHING,
        "changed on jobs_auditentry_of_project",
    ),
    "a partition": ("GRANT SELECT ON jobs_jobevent_default TO queueops_api", "may use jobs_jobevent_default"),
}


def run(statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements.split("; "):
            cursor.execute(statement)


def test_the_database_of_the_migrations_is_safe():
    assert checks.unsafe() == []
    assert run_checks(tags=[Tags.database], databases=["default"]) == []
    assert examine_row_security().verdict is DoctorVerdict.OK


def test_each_harm_is_found_by_the_check_by_doctor_and_by_a_start():
    for harm, (statements, told) in HARMS.items():
        with undone():  # roles, too
            run(statements)
            assert told in checks.unsafe()[0], harm
            assert told in run_checks(tags=[Tags.database], databases=["default"])[0].msg
            assert told in examine_row_security().advice
            with pytest.raises(UnsuitableDatabase, match=told):
                checks.ensure_projects_are_kept_apart()
    assert checks.unsafe() == []


def test_every_table_that_names_a_project_is_among_those_that_are_looked_at():
    found = set(checks.tenant_tables())
    assert {"jobs_job", "jobs_jobevent", "jobs_webhookdelivery", "tenancy_credential_projects"} <= found
    assert {"ratelimits_usagetracking", "ratelimits_decideanswer", "tenancy_issuer"} <= found
    assert not found & checks.SHARED


def test_nobody_but_the_service_reaches_the_log_other_than_by_its_parent():
    make_job(project=make_project("acme").pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM jobs_jobevent LIMIT 1")
        [partition] = cursor.fetchone()
    with acting_for("acme"):
        assert JobEvent.objects.count() > 0
        with pytest.raises(DatabaseError, match=f"permission denied for table {partition}"), transaction.atomic():
            run(f"TABLE {partition}")


def test_what_calls_cost_and_what_servers_take_is_shown_to_its_own_project_alone():
    rows = [Alike(project, "openai", "llm.generate", "m") for project in ("acme", "acme-2", "globex")]
    record_actuals([(alike, 1.0) for alike in rows])
    for name in ("acme", "globex"):
        credential = Credential.objects.create(name=name, service="openai", secret=b"x")
        credential.projects.add(make_project(name))
        CredentialSetting.objects.create(credential=credential, takes="no_batches", reason="said of a job")
    with acting_for("acme"):
        assert list(CostEstimate.objects.values_list("id", flat=True)) == ["acme|openai|llm.generate|m"]
        assert without_batches("acme") == {("acme", "")}
        assert CredentialSetting.objects.only("takes").count() == 1
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            list(CredentialSetting.objects.values_list("reason"))


@pytest.mark.proves("S15")
def test_the_audit_trail_takes_what_the_api_writes_and_shows_it_nothing():
    make_project("acme")
    with acting_for("acme"):
        AuditEntry.objects.create(actor="key:x", action="x", target="x", project_id="acme")
        AuditEntry.objects.create(actor="key:x", action="x", target="x", project_id="")
        for harm in (
            lambda: AuditEntry.objects.create(actor="key:x", action="x", target="x", project_id="globex"),
            lambda: list(AuditEntry.objects.all()),
            lambda: AuditEntry.objects.update(reason="x"),
            lambda: AuditEntry.objects.all().delete(),
        ):
            with pytest.raises(DatabaseError, match=r"row-level security|permission denied"), transaction.atomic():
                harm()


@pytest.mark.proves("S1")
def test_the_view_of_the_audit_trail_shows_a_project_its_own_and_nobody_else_anything():
    make_project("acme")
    for project in ("acme", "globex", ""):
        AuditEntry.objects.create(actor="x", action="x", target=f"of {project}", project_id=project)
    shown = ProjectAuditEntry.objects
    assert not shown.exists()  # whoever acts for no project
    with acting_for("acme"):
        assert list(shown.values_list("target", flat=True)) == ["of acme"]
        assert not shown.filter(project_id="globex").exists()
        for harm in (
            lambda: shown.update(reason="x"),
            lambda: shown.all().delete(),
            lambda: shown.create(actor="x", action="x", target="x", project_id="acme"),
        ):
            with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
                harm()
    with acting_for("globex"):
        assert list(shown.values_list("target", flat=True)) == ["of globex"]
    with acting_for("acme", UUID(int=1)):
        assert not shown.exists()  # it tells of the whole project
    refused = pytest.raises(DatabaseError, match="permission denied")
    with acting_for("acme", role=ANONYMOUS_ROLE), refused, transaction.atomic():
        shown.exists()


def test_a_credentials_secret_is_out_of_reach_and_so_is_the_credential_of_another_project():
    credential = Credential.objects.create(name="ours", service="s", secret=b"x")
    credential.projects.add(make_project("acme"))
    with acting_for("globex"):
        assert not Credential.objects.values_list("name").exists()
    with acting_for("acme"):
        assert Credential.objects.values_list("name", flat=True).get() == "ours"
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            Credential.objects.values_list("secret").get()


def test_the_secrets_of_webhooks_and_alert_routes_are_out_of_reach():
    make_webhook(make_project("acme"))
    make_route()
    for model in (Webhook, AlertRoute):
        with acting_for("acme"), pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            model.objects.values_list("secret").get()


def test_a_project_pauses_what_is_its_own_and_sees_no_other_projects_pauses():
    own, other = make_batch(project="acme"), make_batch(project="globex")
    for scope, key in (("global", ""), ("project", "globex"), ("batch", str(other.pk)), ("batch", str(own.pk))):
        PauseSwitch.objects.create(scope=scope, key=key)
    with acting_for("acme"):
        seen = set(PauseSwitch.objects.values_list("scope", "key"))
        assert seen == {("global", ""), ("batch", str(own.pk))}
        for scope, key in (("service", "http"), ("project", "globex")):
            with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
                PauseSwitch.objects.create(scope=scope, key=key)
        assert PauseSwitch.objects.filter(scope="batch").delete()[0] == 1


def test_anybody_reads_of_a_project_that_shows_itself_and_writes_nothing():
    for project, shown in (("acme", True), ("globex", False)):
        make_job(project=make_project(project).pk)
        Project.objects.filter(pk=project).update(anonymous_read=shown)
    with reading_for("globex", role=ANONYMOUS_ROLE):
        assert not Job.objects.exists()
        assert not Project.objects.exists()
    with reading_for("acme", role=ANONYMOUS_ROLE):
        assert Job.objects.count() == Project.objects.count() == 1
        for harm in (lambda: Job.objects.update(progress=1), lambda: make_batch(project="acme"), Webhook.objects.count):
            with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
                harm()


@pytest.mark.django_db(transaction=True)
def test_databases_that_make_the_roles_at_one_moment_do_not_get_in_each_others_way(monkeypatch):
    """Eight at once, on names of their own: those of the platform exist already."""
    roles = [f"queueops_race_{os.getpid()}_{number}" for number in range(3)]
    monkeypatch.setattr(database_roles, "SERVICE_ROLE", roles[0])
    monkeypatch.setattr(database_roles, "TAKEN_ON", roles[1:])

    def make(_: int) -> list[str]:
        try:
            database_roles.make_roles()
            return database_roles.missing_roles()
        finally:
            connection.close()

    try:
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(make, range(8))) == [[]] * 8
    finally:
        run("; ".join(f"DROP ROLE IF EXISTS {role}" for role in roles))
    assert Project.objects.count() == 0


LATER = """CREATE TABLE jobs_of_a_later_version (id bigint, project_id text)
GRANT SELECT ON jobs_of_a_later_version TO queueops_api
ALTER TABLE jobs_of_a_later_version ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY
CREATE POLICY service ON jobs_of_a_later_version TO queueops_service USING (true)
CREATE POLICY api ON jobs_of_a_later_version TO queueops_api USING (project_id = 'acme')"""


def test_a_table_of_a_later_version_is_a_breach_only_where_it_is_not_confined():
    *statements, last = LATER.split("\n")
    with undone():
        for statement in statements:
            run(statement)
            told = checks.unsafe()
        assert "may use jobs_of_a_later_version" in told[0], "without the API's policy"
        run(last)
        assert checks.unsafe() == [], "a way back after an upgrade is open"
        run("GRANT SELECT ON jobs_of_a_later_version TO queueops_anonymous")
        assert checks.unsafe() == []
        run("CREATE POLICY anonymous ON jobs_of_a_later_version TO queueops_anonymous USING (true)")
        assert "may use jobs_of_a_later_version" in checks.unsafe()[0], "anybody could write"
