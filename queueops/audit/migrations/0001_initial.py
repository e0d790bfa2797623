from django.db import migrations, models
from django.db.models.functions import Now

REFUSE_REWRITING = """
CREATE FUNCTION jobs_refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
"""

# Whole months are dropped: no statement that the application may make rewrites or deletes an entry. The names are those
# of installations that kept their trail in a table of `jobs`.
TRAIL = """
CREATE SEQUENCE jobs_auditentry_number;
CREATE TABLE jobs_auditentry (
    id         bigint NOT NULL DEFAULT nextval('jobs_auditentry_number'),
    project_id varchar(63) NOT NULL,
    actor      varchar(100) NOT NULL,
    action     varchar(60) NOT NULL,
    target     varchar(200) NOT NULL,
    before     jsonb,
    after      jsonb,
    moved      integer NOT NULL,
    reason     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    address    varchar(64) NOT NULL DEFAULT '',
    CONSTRAINT jobs_auditentry_pkey1 PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
ALTER SEQUENCE jobs_auditentry_number OWNED BY jobs_auditentry.id;
CREATE INDEX jobs_auditentry_target_idx ON jobs_auditentry (target, id DESC);
CREATE TABLE jobs_auditentry_default PARTITION OF jobs_auditentry DEFAULT;
CREATE TRIGGER jobs_auditentry_append_only BEFORE UPDATE OR DELETE ON jobs_auditentry
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_rewriting();
"""


class Migration(migrations.Migration):
    """`queueops.tenancy`, which knows the projects, says who sees which entries."""

    initial = True
    replaces = [('audit', '0001_from_jobs')]

    dependencies = []

    operations = [
        migrations.RunSQL(REFUSE_REWRITING, 'DROP FUNCTION jobs_refuse_rewriting()'),
        # Django has no partitioned tables.
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TRAIL, 'DROP TABLE jobs_auditentry')],
            state_operations=[
                migrations.CreateModel(
                    name='AuditEntry',
                    fields=[
                        ('id', models.BigAutoField(primary_key=True, serialize=False)),
                        ('project_id', models.CharField(blank=True, max_length=63)),
                        ('actor', models.CharField(max_length=100)),
                        ('action', models.CharField(max_length=60)),
                        ('target', models.CharField(max_length=200)),
                        ('before', models.JSONField(null=True)),
                        ('after', models.JSONField(null=True)),
                        ('moved', models.PositiveIntegerField(default=1, help_text='How many rows it changed.')),
                        ('reason', models.TextField(blank=True)),
                        ('created_at', models.DateTimeField(db_default=Now())),
                        ('address', models.CharField(blank=True, default='', help_text='Of who asked.', max_length=64)),
                    ],
                    options={
                        'verbose_name_plural': 'audit entries',
                        'db_table': 'jobs_auditentry',
                        'ordering': ('-id',),
                        'indexes': [models.Index(fields=['target', '-id'], name='jobs_auditentry_target_idx')],
                    },
                ),
            ],
        ),
    ]
