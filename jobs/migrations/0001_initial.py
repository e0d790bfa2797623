from uuid import UUID

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models.functions import Now

from jobs.models.guard import DROP_GUARD, guard_sql
from jobs.models.job import new_id
from queueops.tenancy.row_security import (
    OF_PROJECT,
    OF_SHOWN_PROJECT,
    OF_USER,
    PROJECT,
    USER,
    columns,
    grant,
    protect,
    show_to_anonymous,
)
from queueops.tenancy.scope import ANONYMOUS_ROLE

STATES = [
    ('queued', 'Queued'),
    ('rate_limited', 'Rate Limited'),
    ('dispatched', 'Dispatched'),
    ('in_progress', 'In Progress'),
    ('retried', 'Retried'),
    ('completed', 'Completed'),
    ('failed', 'Failed'),
    ('cancelled', 'Cancelled'),
]
TIERS = [
    ('urgent', 'Urgent'),
    ('normal', 'Normal'),
    ('low', 'Low'),
]

# A queue's index keeps an entry for each passed state until vacuum removes it, so vacuum must come by the number
# of dead rows and not by a share of a growing table. Counter rows are rewritten in place: free space on their
# pages keeps those updates out of the index.
STORAGE = """
ALTER TABLE jobs_job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE jobs_jobcount SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
"""

# A column's default is computed before the next one's: a transaction whose first write is an event would take the
# event's id first and its own id later. jobs/services/explain/event_log.py tells which events may still appear by the ids of
# transactions, which holds only where a transaction has one before it takes an event's.
EVENT_LOG = """
CREATE SEQUENCE jobs_jobevent_id;
CREATE TABLE jobs_jobevent (
    id               bigint NOT NULL
                     DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('jobs_jobevent_id') END,
    xid              xid8 NOT NULL DEFAULT pg_current_xact_id(),
    job_id           uuid NOT NULL,
    project_id       varchar(63) NOT NULL,
    user_id          uuid,
    batch_id         uuid,
    event_type       varchar(12) NOT NULL,
    from_status      varchar(12),
    to_status        varchar(12),
    message          text NOT NULL DEFAULT '',
    progress_percent smallint,
    data             jsonb,
    created_at       timestamptz NOT NULL DEFAULT now(),
    service          varchar(64),
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX jobs_jobevent_job_idx ON jobs_jobevent (job_id, id);
CREATE TABLE jobs_jobevent_default PARTITION OF jobs_jobevent DEFAULT;
CREATE TRIGGER jobs_jobevent_append_only BEFORE UPDATE ON jobs_jobevent
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_rewriting();
"""

DROP_EVENT_LOG = """
DROP TABLE jobs_jobevent;
DROP SEQUENCE jobs_jobevent_id;
"""

OF_USERS_JOB = f"""{OF_PROJECT} AND ({USER} IS NULL
    OR EXISTS (SELECT FROM jobs_job AS job WHERE job.id = jobs_deadletter.job_id))"""
# Of a user, what they began themselves: an operation has no column for them, its actor ends with their id.
OPERATION = f"""coalesce(parameters ->> 'project_id', parameters -> 'filter' ->> 'project_id') = {PROJECT}
    AND ({USER} IS NULL OR right(actor, 36) = {USER}::text)"""
OWN_WEBHOOK = "EXISTS (SELECT FROM jobs_webhook AS webhook WHERE webhook.id = webhook_id)"
OWN_SWITCH = f"""(scope = 'project' AND key = {PROJECT})
    OR (scope = 'batch' AND EXISTS (SELECT FROM jobs_batch AS batch WHERE batch.id::text = key))"""
SWITCH = f"scope IN ('global', 'service', 'kind') OR {OWN_SWITCH}"
# Of an end user, those of the jobs and batches that they see.
OF_OWN = f"""{OF_PROJECT} AND ({USER} IS NULL
    OR EXISTS (SELECT FROM jobs_job AS job WHERE job.id = owner_id)
    OR EXISTS (SELECT FROM jobs_batch AS batch WHERE batch.id = owner_id))"""


class Migration(migrations.Migration):
    initial = True
    replaces = [('jobs', name) for name in (
        '0002_log_guard_and_storage',
        '0003_lanes',
        '0004_event_service',
        '0005_flow',
        '0006_paced_bulk_operations',
        '0007_saved_filters_and_uploads',
        '0008_event_ids_follow_transaction_ids',
        '0009_batch_user',
        '0010_row_security',
        '0011_anonymous',
        '0012_sealed_webhook_secret',
        '0013_bulk_failures',
        '0014_cluster_identity',
        '0015_breakers_of_targets',
        '0016_index_of_outages',
        '0017_retention',
        '0018_unserved_kinds',
        '0019_loop_held',
        '0020_audit_trail_moves',
        '0021_batch_forecast',
        '0022_tags',
        '0023_run_again',
        '0024_claim_in_one_move',
        '0025_drop_event_type_index',
    )]

    dependencies = [
        ('audit', '0001_initial'),
        ('tenancy', '0001_initial'),
        ('django_q', '0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # Tables
        migrations.CreateModel(
            name='RetryPolicy',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('initial_seconds', models.FloatField(default=1, validators=[MinValueValidator(0.01)])),
                ('multiplier', models.FloatField(default=3, validators=[MinValueValidator(1)])),
                ('max_delay_seconds', models.FloatField(default=60, validators=[MinValueValidator(0.01)])),
                ('max_retries', models.PositiveSmallIntegerField(default=5, validators=[MaxValueValidator(1000)])),
                ('jitter', models.CharField(choices=[('full', 'full: anywhere between zero and the delay'), ('limited', 'limited: the delay, less up to a tenth'), ('none', 'none')], default='full', max_length=10)),
                ('window_seconds', models.FloatField(blank=True, help_text='From the first attempt; time spent waiting for limits does not count. Empty: not bounded.', null=True, validators=[MinValueValidator(1)])),
            ],
            options={
                'verbose_name_plural': 'retry policies',
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='AgingRule',
            fields=[
                ('tier', models.CharField(choices=TIERS, max_length=10, primary_key=True, serialize=False)),
                ('base', models.PositiveSmallIntegerField(help_text='Score of a job that has just arrived.')),
                ('first_after_seconds', models.PositiveIntegerField(blank=True, help_text='Empty: never rises.', null=True)),
                ('first_score', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('step_seconds', models.PositiveIntegerField(blank=True, help_text='Then one point more each time this passes.', null=True, validators=[MinValueValidator(1)])),
                ('cap', models.PositiveSmallIntegerField(help_text='The score never passes this.')),
                ('promote_after_seconds', models.PositiveIntegerField(blank=True, help_text='Empty: never promoted.', null=True)),
                ('promote_to', models.CharField(blank=True, choices=TIERS, max_length=10, null=True)),
            ],
            options={
                'ordering': ('-base',),
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('cap__gte', models.F('base'))), name='agingrule_cap_not_below_base'),
                    models.CheckConstraint(condition=models.Q(models.Q(('promote_after_seconds', None), ('promote_to', None)), models.Q(('promote_after_seconds__isnull', False), ('promote_to__isnull', False)), _connector='OR'), name='agingrule_promotion_is_whole'),
                    models.CheckConstraint(condition=models.Q(models.Q(('first_after_seconds', None), ('first_score', None), ('step_seconds', None)), models.Q(('first_after_seconds__isnull', False), ('first_score__isnull', False)), _connector='OR'), name='agingrule_first_step_is_whole'),
                    models.CheckConstraint(condition=models.Q(('step_seconds', None), ('step_seconds__gt', 0), _connector='OR'), name='agingrule_step_positive'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Batch',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, max_length=200)),
                ('total', models.PositiveIntegerField(default=0)),
                ('paused', models.BooleanField(db_default=False, default=False)),
                ('submitted_by', models.CharField(max_length=100)),
                ('rate_per_second', models.FloatField(help_text='Jobs finished per second, smoothed.', null=True)),
                ('sampled_at', models.DateTimeField(null=True)),
                ('sampled_finished', models.PositiveIntegerField(db_default=0, default=0)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('finished_at', models.DateTimeField(null=True)),
                ('project', models.ForeignKey(on_delete=models.PROTECT, related_name='batches', to='tenancy.project')),
                ('user_id', models.UUIDField(blank=True, help_text='The end user who submitted it: all its jobs are theirs.', null=True)),
                ('ends_at', models.DateTimeField(help_text='A forecast; null: nothing is known.', null=True)),
                ('ends_earliest', models.DateTimeField(help_text='Where its past speed and the limits differ much: what the speed says.', null=True)),
                ('foreseen_at', models.DateTimeField(help_text='When that was computed.', null=True)),
            ],
            options={
                'verbose_name_plural': 'batches',
                'indexes': [
                    models.Index(fields=['project', '-created_at'], name='jobs_batch_project_idx'),
                    models.Index(condition=models.Q(('finished_at', None)), fields=['id'], name='jobs_batch_open_idx'),
                    models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='jobs_batch_finished_idx'),
                    models.Index(condition=models.Q(('user_id__isnull', False)), fields=['user_id', 'id'], name='jobs_batch_user_idx'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('user_id', models.UUIDField(blank=True, null=True)),
                ('kind', models.CharField(max_length=100)),
                ('service', models.CharField(max_length=64)),
                ('model', models.CharField(blank=True, max_length=100, null=True)),
                ('call_type', models.CharField(choices=[('read', 'Read'), ('write', 'Write')], max_length=5)),
                ('cost', models.PositiveIntegerField(db_default=1, default=1)),
                ('priority', models.CharField(choices=TIERS, default='normal', max_length=10)),
                ('status', models.CharField(choices=STATES, default='queued', max_length=12)),
                ('held', models.BooleanField(db_default=False, default=False)),
                ('payload', models.JSONField()),
                ('result', models.JSONField(null=True)),
                ('idempotency_key', models.CharField(blank=True, max_length=200, null=True)),
                ('effect_key', models.CharField(max_length=200)),
                ('retry_count', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('crash_count', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('deferral_count', models.PositiveIntegerField(db_default=0, default=0)),
                ('deferred_seconds', models.FloatField(db_default=0, default=0, help_text='Since the first attempt; not of its window.')),
                ('deferred_since', models.DateTimeField(null=True)),
                ('scheduled_at', models.DateTimeField(blank=True, null=True)),
                ('eligible_since', models.DateTimeField()),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('first_attempt_at', models.DateTimeField(null=True)),
                ('progress', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('progress_message', models.CharField(db_default='', default='', max_length=500)),
                ('lease_expires_at', models.DateTimeField(null=True)),
                ('executor', models.UUIDField(null=True)),
                ('fencing_token', models.BigIntegerField(db_default=0, default=0)),
                ('last_error_code', models.CharField(db_default='', default='', max_length=64)),
                ('last_error_message', models.TextField(db_default='', default='')),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('updated_at', models.DateTimeField(db_default=Now())),
                ('started_at', models.DateTimeField(null=True)),
                ('finished_at', models.DateTimeField(null=True)),
                ('batch', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=models.PROTECT, related_name='jobs', to='jobs.batch')),
                ('origin', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=models.SET_NULL, to='jobs.job')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, to='tenancy.project')),
                ('retry_policy', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=models.PROTECT, to='jobs.retrypolicy')),
                ('coalesce_key', models.CharField(help_text='Waiting jobs of one key leave as one call. Null: it leaves alone.', max_length=500, null=True)),
                ('credential', models.CharField(blank=True, max_length=100, null=True)),
                ('known_cost', models.PositiveIntegerField(blank=True, help_text='The part of the cost that is no guess, such as input tokens. Null: all of it.', null=True)),
                ('lane', models.CharField(help_text='See jobs/lanes.py. Null: its service has no limits and users no turns.', max_length=500, null=True)),
                ('path', models.IntegerField(db_default=0, default=0, help_text='What it calls there, as a hash. 0: there is nothing to tell apart.')),
                ('target', models.CharField(db_default='', default='', help_text='Where its call goes, see jobs/lanes.py. Empty: its service.', max_length=400)),
            ],
            options={
                'permissions': [
                    ('cancel_job', 'Can cancel jobs'),
                    ('reschedule_job', 'Can reschedule jobs and run them now'),
                    ('reprioritise_job', 'Can change the priority of jobs'),
                    ('pause_work', 'Can pause and resume batches, projects, services and kinds'),
                    ('run_again', 'Can do the work of ended jobs once more'),
                ],
                'indexes': [
                    models.Index(condition=models.Q(('crash_count__lt', 2), ('held', False), ('lane', None), ('scheduled_at', None), ('status', 'queued')), fields=['project', 'priority', 'eligible_since', 'id'], name='jobs_job_ready_idx'),
                    models.Index(condition=models.Q(models.Q(('status', 'rate_limited'), models.Q(('scheduled_at', None), ('status', 'queued')), _connector='OR'), ('crash_count__lt', 2), ('held', False), ('lane__isnull', False)), fields=['lane', 'priority', 'eligible_since', 'id'], name='jobs_job_in_lane_idx'),
                    models.Index(condition=models.Q(('coalesce_key__isnull', False), models.Q(('status', 'rate_limited'), models.Q(('scheduled_at', None), ('status', 'queued')), _connector='OR'), ('crash_count__lt', 2), ('held', False), ('lane__isnull', False)), fields=['coalesce_key', 'eligible_since', 'id'], name='jobs_job_coalesce_idx'),
                    models.Index(condition=models.Q(('crash_count__gte', 2), ('held', False), ('scheduled_at', None), ('status', 'queued')), fields=['eligible_since', 'id'], name='jobs_job_quarantine_idx'),
                    models.Index(condition=models.Q(('held', False), ('scheduled_at', None), ('status', 'queued')), fields=['service', 'call_type', 'project', 'user_id', 'priority', 'eligible_since', 'id'], name='jobs_job_lane_idx'),
                    models.Index(condition=models.Q(('held', False), ('status', 'rate_limited')), fields=['service', 'call_type', 'project', 'user_id', 'priority', 'eligible_since', 'id'], name='jobs_job_parked_idx'),
                    models.Index(condition=models.Q(('held', False), ('scheduled_at', None), ('status', 'rate_limited')), fields=['service', 'project', 'target'], name='jobs_job_outage_idx'),
                    models.Index(condition=models.Q(('scheduled_at__isnull', False), ('status__in', ['queued', 'rate_limited', 'retried']), models.Q(models.Q(('status', 'rate_limited'), _negated=True), ('lane', None), _connector='OR')), fields=['scheduled_at'], name='jobs_job_due_idx'),
                    models.Index(condition=models.Q(('status__in', ['dispatched', 'in_progress'])), fields=['lease_expires_at'], name='jobs_job_leases_idx'),
                    models.Index(condition=models.Q(('expires_at__isnull', False), ('status__in', ['queued', 'rate_limited', 'retried'])), fields=['expires_at'], name='jobs_job_expiry_idx'),
                    models.Index(condition=models.Q(('user_id__isnull', False)), fields=['user_id', 'id'], name='jobs_job_user_idx'),
                    models.Index(condition=models.Q(('batch__isnull', False)), fields=['batch', 'status'], name='jobs_job_batch_idx'),
                    models.Index(condition=models.Q(('origin__isnull', False)), fields=['origin'], name='jobs_job_origin_idx'),
                    models.Index(fields=['project', 'id'], name='jobs_job_project_idx'),
                    models.Index(condition=models.Q(('held', True)), fields=['id'], name='jobs_job_held_idx'),
                    models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['finished_at'], name='jobs_job_finished_idx'),
                ],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('project', 'idempotency_key'), name='jobs_job_idempotency_key'),
                    models.CheckConstraint(condition=models.Q(('progress__lte', 100)), name='jobs_job_progress_percent'),
                    models.CheckConstraint(condition=models.Q(models.Q(('lease_expires_at__isnull', False), ('status__in', ['dispatched', 'in_progress'])), models.Q(models.Q(('status__in', ['dispatched', 'in_progress']), _negated=True), ('lease_expires_at', None)), _connector='OR'), name='jobs_job_lease_while_running'),
                    models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', False), ('status__in', ['completed', 'failed', 'cancelled'])), models.Q(models.Q(('status__in', ['completed', 'failed', 'cancelled']), _negated=True), ('finished_at', None)), _connector='OR'), name='jobs_job_finished_when_terminal'),
                    models.CheckConstraint(condition=models.Q(models.Q(('status', 'retried'), _negated=True), ('scheduled_at__isnull', False), _connector='OR'), name='jobs_job_retried_has_a_time'),
                ],
            },
        ),
        migrations.CreateModel(
            name='JobEvent',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('xid', models.BigIntegerField(editable=False)),
                ('job_id', models.UUIDField()),
                ('project_id', models.CharField(max_length=63)),
                ('user_id', models.UUIDField(null=True)),
                ('batch_id', models.UUIDField(null=True)),
                ('event_type', models.CharField(choices=[('state_change', 'State Change'), ('progress', 'Progress'), ('error', 'Error'), ('scheduling', 'Scheduling'), ('audit', 'Audit')], max_length=12)),
                ('from_status', models.CharField(choices=STATES, max_length=12, null=True)),
                ('to_status', models.CharField(choices=STATES, max_length=12, null=True)),
                ('message', models.TextField(default='')),
                ('progress_percent', models.PositiveSmallIntegerField(null=True)),
                ('data', models.JSONField(null=True)),
                ('created_at', models.DateTimeField()),
                ('service', models.CharField(max_length=64, null=True)),
            ],
            options={
                'db_table': 'jobs_jobevent',
                'ordering': ('id',),
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='JobCount',
            fields=[
                ('pk', models.CompositePrimaryKey('project_id', 'batch_id', 'shard', blank=True, editable=False, primary_key=True, serialize=False)),
                ('project_id', models.CharField(max_length=63)),
                ('batch_id', models.UUIDField(default=UUID('00000000-0000-0000-0000-000000000000'))),
                ('shard', models.IntegerField()),
                ('queued', models.IntegerField(db_default=0, default=0)),
                ('rate_limited', models.IntegerField(db_default=0, default=0)),
                ('dispatched', models.IntegerField(db_default=0, default=0)),
                ('in_progress', models.IntegerField(db_default=0, default=0)),
                ('retried', models.IntegerField(db_default=0, default=0)),
                ('completed', models.IntegerField(db_default=0, default=0)),
                ('failed', models.IntegerField(db_default=0, default=0)),
                ('cancelled', models.IntegerField(db_default=0, default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['batch_id'], name='jobs_jobcount_batch_idx')],
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('batch_id', models.UUIDField(null=True)),
                ('kind', models.CharField(max_length=100)),
                ('service', models.CharField(max_length=64)),
                ('payload', models.JSONField()),
                ('error_code', models.CharField(max_length=64)),
                ('error_class', models.CharField(max_length=200)),
                ('error_message', models.TextField()),
                ('http_status', models.PositiveSmallIntegerField(null=True)),
                ('remediation', models.TextField(help_text='What the operator is told to do.')),
                ('attempts', models.JSONField(help_text='Each failed attempt with its time, error and delay.')),
                ('retry_count', models.PositiveSmallIntegerField()),
                ('crash_count', models.PositiveSmallIntegerField()),
                ('fingerprint', models.CharField(help_text='Equal for failures with one cause.', max_length=32)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('resolution', models.CharField(blank=True, choices=[('requeued', 'Requeued'), ('discarded', 'Discarded')], max_length=10, null=True)),
                ('resolved_by', models.CharField(blank=True, db_default='', default='', max_length=100)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('note', models.TextField(blank=True, db_default='', default='')),
                ('project', models.ForeignKey(db_index=False, on_delete=models.PROTECT, to='tenancy.project')),
                ('job', models.OneToOneField(on_delete=models.CASCADE, related_name='dead_letter', to='jobs.job')),
                ('requeued_as', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=models.SET_NULL, related_name='requeued_from', to='jobs.job')),
                ('operation_id', models.UUIDField(blank=True, help_text='The bulk operation that resolved it.', null=True)),
                ('timeline', models.JSONField(help_text="Its job's events, kept when the log's days go.", null=True)),
            ],
            options={
                'permissions': [
                    ('requeue_deadletter', 'Can requeue dead letters'),
                    ('discard_deadletter', 'Can discard dead letters'),
                    ('export_deadletter', 'Can export dead letters with unmasked payloads'),
                ],
                'indexes': [
                    models.Index(fields=['project', '-created_at'], name='jobs_deadletter_project_idx'),
                    models.Index(condition=models.Q(('resolution', None)), fields=['fingerprint', 'id'], name='jobs_deadletter_open_idx'),
                    models.Index(fields=['-created_at'], name='jobs_deadletter_created_idx'),
                    models.Index(condition=models.Q(('resolution', None)), fields=['batch_id', 'id'], name='jobs_deadletter_batch_idx'),
                    models.Index(condition=models.Q(('operation_id__isnull', False)), fields=['operation_id', 'id'], name='jobs_deadletter_operation_idx'),
                    models.Index(condition=models.Q(('requeued_as__isnull', False)), fields=['requeued_as'], name='jobs_deadletter_requeued_idx'),
                    models.Index(condition=models.Q(('timeline__isnull', True)), fields=['job'], name='jobs_deadletter_bare_idx'),
                ],
            },
        ),
        migrations.CreateModel(
            name='FlowSample',
            fields=[
                ('pk', models.CompositePrimaryKey('span_seconds', 'at', 'service', blank=True, editable=False, primary_key=True, serialize=False)),
                ('span_seconds', models.PositiveSmallIntegerField()),
                ('at', models.DateTimeField(help_text="The span's beginning.")),
                ('service', models.CharField(max_length=64)),
                ('submitted', models.BigIntegerField(db_default=0, default=0)),
                ('completed', models.BigIntegerField(db_default=0, default=0)),
                ('failed', models.BigIntegerField(db_default=0, default=0, help_text='For good.')),
                ('retried', models.BigIntegerField(db_default=0, default=0, help_text='Attempts that failed and are repeated.')),
                ('deferred', models.BigIntegerField(db_default=0, default=0)),
                ('cancelled', models.BigIntegerField(db_default=0, default=0)),
                ('crashed', models.BigIntegerField(db_default=0, default=0)),
                ('leases_lost', models.BigIntegerField(db_default=0, default=0)),
                ('answers', ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Of providers, by class.', size=None)),
                ('sizes', ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Of answers, a histogram.', size=None)),
                ('size_bytes', models.BigIntegerField(db_default=0, default=0)),
                ('latencies', ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Of handlers, a histogram.', size=None)),
                ('latency_ms', models.FloatField(db_default=0, default=0)),
                ('delays', ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Until a worker took a job, a histogram.', size=None)),
                ('delay_ms', models.FloatField(db_default=0, default=0)),
                ('backlog', ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
            ],
        ),
        migrations.CreateModel(
            name='DecisionTotal',
            fields=[
                ('pk', models.CompositePrimaryKey('decision', 'service', 'call_type', 'model', 'limit_name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('decision', models.CharField(choices=[('granted', 'Granted'), ('deferred', 'Deferred'), ('rejected', 'Rejected')], max_length=8)),
                ('service', models.CharField(max_length=64)),
                ('call_type', models.CharField(db_default='', default='', help_text='Of calls granted.', max_length=5)),
                ('model', models.CharField(db_default='', default='', help_text='Of calls granted.', max_length=100)),
                ('limit_name', models.CharField(db_default='', default='', help_text='That deferred or rejected.', max_length=100)),
                ('calls', models.BigIntegerField(db_default=0, default=0)),
            ],
        ),
        migrations.CreateModel(
            name='FlowCursor',
            fields=[
                ('log', models.CharField(max_length=20, primary_key=True, serialize=False)),
                ('counted', models.BigIntegerField(help_text='All ids up to here are counted.')),
                ('mark', models.BigIntegerField()),
                ('marked_at', models.DateTimeField(db_default=Now())),
                ('horizon', models.BigIntegerField(null=True)),
            ],
            options={
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('counted__lte', models.F('mark'))), name='jobs_flowcursor_in_order'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Executor',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('general', 'General'), ('quarantine', 'quarantine: one suspect job at a time')], default='general', max_length=10)),
                ('host', models.CharField(max_length=255)),
                ('pid', models.IntegerField()),
                ('process_started_at', models.FloatField(help_text="The process's start, in the host's epoch seconds.")),
                ('cluster_pid', models.IntegerField(help_text='The django-q2 sentinel that guards it.')),
                ('slots', models.PositiveIntegerField()),
                ('in_flight', models.PositiveIntegerField(db_default=0, default=0)),
                ('draining', models.BooleanField(db_default=False, default=False)),
                ('loop_lag_ms', models.FloatField(db_default=0, default=0, help_text="How late the handlers' event loop answers.")),
                ('leases_lost', models.PositiveIntegerField(db_default=0, default=0)),
                ('started_at', models.DateTimeField(db_default=Now())),
                ('heartbeat_at', models.DateTimeField(db_default=Now())),
                ('cluster_id', models.UUIDField(db_default=RandomUUID(), help_text='Drawn at each start of a cluster: hosts may share a name, and so may pids.')),
                ('kinds', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict, help_text="What it carries out, each with its payload's version.")),
                ('loop_held_at', models.DateTimeField(null=True)),
                ('loop_held_by', models.CharField(db_default='', default='', help_text='The job that did it last.', max_length=300)),
                ('loops_held', models.PositiveIntegerField(db_default=0, default=0, help_text='Times that a handler held the event loop for longer than its budget.')),
            ],
            options={
                'ordering': ('host', 'pid'),
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('role', 'quarantine')), fields=('cluster_id',), name='jobs_executor_one_seat'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ServiceBreaker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=64)),
                ('target', models.CharField(blank=True, help_text='See jobs/lanes.py. Empty: the service itself.', max_length=400)),
                ('project_id', models.CharField(max_length=63, verbose_name='project')),
                ('failures', models.PositiveIntegerField(db_default=0, default=0, help_text='In a row: connect errors, broken connections, timeouts and 5xx answers.')),
                ('calls', ArrayField(base_field=models.UUIDField(), default=list, help_text='The calls that failed, the first few.', size=None)),
                ('paths', ArrayField(base_field=models.IntegerField(), default=list, help_text='The paths that failed.', size=None)),
                ('spared', ArrayField(base_field=models.IntegerField(), default=list, help_text='Paths that failed while others answered: no outage is theirs.', size=None)),
                ('opened_at', models.DateTimeField(null=True)),
                ('closed_at', models.DateTimeField(help_text='When it closed last.', null=True)),
                ('probe_job_id', models.UUIDField(null=True)),
                ('probed', ArrayField(base_field=models.UUIDField(), default=list, help_text='The last jobs sent as probes.', size=None)),
                ('probed_at', models.DateTimeField(null=True)),
                ('next_probe_at', models.DateTimeField(null=True)),
                ('probes', models.PositiveIntegerField(db_default=0, default=0, help_text='Probes sent since it opened.')),
                ('holds', models.PositiveIntegerField(db_default=0, default=0, help_text='Jobs that wait for its end; at most 10,000.')),
                ('last_error', models.TextField(db_default='', default='')),
                ('updated_at', models.DateTimeField(db_default=Now())),
            ],
            options={
                'permissions': [('steer_servicebreaker', 'Can close outage breakers and send probes')],
                'constraints': [
                    models.UniqueConstraint(fields=('service', 'target', 'project_id'), name='jobs_servicebreaker_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='DutyLease',
            fields=[
                ('duty', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('holder', models.UUIDField()),
                ('expires_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='PauseSwitch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('global', 'Global'), ('project', 'Project'), ('service', 'Service'), ('kind', 'Kind'), ('batch', 'Batch'), ('unknown', 'no worker knows kind'), ('unfit', 'no worker takes some payloads of kind')], max_length=10)),
                ('key', models.CharField(blank=True, help_text='Project, service, kind or batch; empty for global.', max_length=100)),
                ('reason', models.TextField(blank=True)),
                ('paused_by', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(db_default=Now())),
            ],
            options={
                'verbose_name_plural': 'pause switches',
                'constraints': [models.UniqueConstraint(fields=('scope', 'key'), name='jobs_pauseswitch_once')],
            },
        ),
        migrations.CreateModel(
            name='SavedFilter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('screen', models.CharField(choices=[('job', 'jobs'), ('batch', 'batches'), ('deadletter', 'dead letters')], max_length=20)),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(help_text="The list's parameters, as its address has them.", max_length=2000)),
                ('shared', models.BooleanField(db_default=False, default=False)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('owner', models.ForeignKey(on_delete=models.CASCADE, related_name='saved_filters', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('share_savedfilter', 'Can share saved filters')],
                'constraints': [
                    models.UniqueConstraint(fields=('owner', 'screen', 'name'), name='jobs_savedfilter_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Upload',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(blank=True, help_text='Of the batch.', max_length=200)),
                ('file_name', models.CharField(max_length=200)),
                ('format', models.CharField(choices=[('csv', 'CSV'), ('ndjson', 'NDJSON')], max_length=10)),
                ('default_kind', models.CharField(blank=True, help_text='Of lines that name none.', max_length=100)),
                ('content', models.BinaryField(help_text='Compressed by zlib.', null=True)),
                ('size_bytes', models.PositiveIntegerField()),
                ('lines', models.PositiveIntegerField(help_text='Jobs in it, good and bad.')),
                ('error_count', models.PositiveIntegerField()),
                ('errors', models.JSONField(help_text='The first of them: line, code, message, fields.')),
                ('sample', models.JSONField(help_text='What the first jobs would be.')),
                ('uploaded_by', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('batch_id', models.UUIDField(help_text='What was made of it.', null=True)),
                ('project', models.ForeignKey(on_delete=models.CASCADE, related_name='uploads', to='tenancy.project')),
            ],
            options={
                'indexes': [models.Index(fields=['created_at'], name='jobs_upload_created_idx')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=200)),
                ('request_digest', models.CharField(max_length=64)),
                ('status_code', models.PositiveSmallIntegerField(null=True)),
                ('answer', models.JSONField(null=True)),
                ('created_at', models.DateTimeField(db_default=Now(), db_index=True)),
                ('project', models.ForeignKey(db_index=False, on_delete=models.CASCADE, to='tenancy.project')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'key'), name='jobs_idempotencyrecord_once')],
            },
        ),
        migrations.CreateModel(
            name='BulkOperation',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('action', models.CharField(max_length=40)),
                ('parameters', models.JSONField()),
                ('reason', models.TextField(blank=True)),
                ('actor', models.CharField(max_length=100)),
                ('status', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='running', max_length=10)),
                ('total', models.PositiveIntegerField(help_text='Rows that matched when it began.')),
                ('done', models.PositiveIntegerField(db_default=0, default=0, help_text='Rows acted on.')),
                ('skipped', models.PositiveIntegerField(db_default=0, default=0, help_text='Rows left alone: changed meanwhile.')),
                ('cursor', models.UUIDField(help_text='The last row looked at.', null=True)),
                ('error', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('updated_at', models.DateTimeField(db_default=Now())),
                ('finished_at', models.DateTimeField(null=True)),
                ('next_at', models.DateTimeField(help_text='When its next chunk is due.', null=True)),
                ('rows_per_minute', models.FloatField(help_text='At most so many. Null: as fast as the chunks go.', null=True)),
                ('stop_at_failed_percent', models.PositiveSmallIntegerField(help_text='It ends when more of the requeued jobs than that fail again.', null=True)),
                ('total_is_least', models.BooleanField(db_default=False, default=False, help_text='Only so many were counted; set right when it ends.')),
                ('turn', models.PositiveIntegerField(db_default=0, default=0, help_text='Times it was handed out; tasks of earlier turns do nothing.')),
                ('failures', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Chunks in a row that raised something unexpected.')),
            ],
            options={
                'ordering': ('-created_at',),
            },
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('url', models.URLField(max_length=500)),
                ('enabled', models.BooleanField(default=True)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('project', models.ForeignKey(on_delete=models.CASCADE, related_name='webhooks', to='tenancy.project')),
                ('rotated_at', models.DateTimeField(editable=False, null=True)),
                ('secret', models.BinaryField()),
            ],
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.UUIDField(default=new_id, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('batch', models.ForeignKey(on_delete=models.CASCADE, to='jobs.batch')),
                ('job', models.OneToOneField(on_delete=models.CASCADE, to='jobs.job')),
                ('webhook', models.ForeignKey(on_delete=models.CASCADE, related_name='deliveries', to='jobs.webhook')),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
                'constraints': [models.UniqueConstraint(fields=('webhook', 'batch'), name='jobs_webhookdelivery_once')],
            },
        ),
        migrations.CreateModel(
            name='Tag',
            fields=[
                ('pk', models.CompositePrimaryKey('owner_id', 'name', blank=True, editable=False, primary_key=True, serialize=False)),
                ('owner_id', models.UUIDField()),
                ('name', models.CharField(max_length=100)),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, related_name='+', to='tenancy.project')),
            ],
            options={
                'indexes': [models.Index(fields=['name', 'project', 'owner_id'], name='jobs_tag_find_idx')],
            },
        ),
        migrations.RunSQL('CREATE SEQUENCE jobs_fencing_token', 'DROP SEQUENCE jobs_fencing_token'),

        # Storage parameters
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),

        # The log, in parts
        migrations.RunSQL(EVENT_LOG, DROP_EVENT_LOG),

        # The guard of the states
        migrations.RunSQL(guard_sql(), DROP_GUARD),

        # Row security
        protect('jobs_batch', OF_USER, 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_job', OF_USER, 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_jobevent', OF_USER, 'SELECT', 'INSERT'),  # not its partitions: they are reached through it alone
        protect('jobs_jobcount', OF_PROJECT, 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_deadletter', OF_USERS_JOB, 'SELECT', 'UPDATE'),
        protect('jobs_idempotencyrecord', OF_PROJECT, 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_bulkoperation', OPERATION, 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_pauseswitch', SWITCH, 'SELECT', 'INSERT', 'UPDATE', 'DELETE', check=OWN_SWITCH),
        protect('jobs_upload', OF_PROJECT),
        protect('jobs_webhook', OF_PROJECT),
        protect('jobs_webhookdelivery', OWN_WEBHOOK),
        protect('jobs_servicebreaker', OF_PROJECT, 'SELECT'),
        protect('jobs_tag', OF_OWN, 'SELECT', 'INSERT'),
        *[
            show_to_anonymous(f'jobs_{name}', OF_SHOWN_PROJECT)
            for name in ('batch', 'job', 'jobevent', 'jobcount', 'servicebreaker', 'tag')
        ],

        # Grants
        grant('SEQUENCE jobs_jobevent_id', 'USAGE'),
        grant('TABLE jobs_retrypolicy', 'SELECT'),
        grant('TABLE jobs_agingrule', 'SELECT'),
        grant('TABLE jobs_agingrule', 'SELECT', role=ANONYMOUS_ROLE),  # by it a job's effective priority is told
        grant('TABLE django_q_ormq', 'INSERT', columns('SELECT', ['id'])),
    ]
