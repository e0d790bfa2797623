from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Greatest, Now

from queueops.tenancy.row_security import OF_PROJECT, OF_USER, grant, protect
from ratelimits.models.allowance import new_reservation_id

KINDS = [
    ('usage', 'usage crossed a threshold'),
    ('saturated', 'work waits beyond a cap'),
    ('exceeded', 'the provider refused, or the cap was passed'),
    ('unlimited', 'the provider refused what no limit counts'),
    ('dead_letters', 'dead letters grow'),
    ('oldest_ready', 'ready work waits too long'),
    ('stuck_executor', 'an executor is stuck'),
    ('outage', 'a service does not answer'),
    ('failing', 'most attempts fail'),
    ('unserved', 'no worker carries out a kind'),
    ('forgotten', 'paused for long'),
    ('horizon', 'the database cannot clear up'),
    ('charge_leak', 'estimates were not settled'),
    ('allowance', "a user comes near the month's quota"),
    ('overage', 'a user passed a strict quota'),
]

# A counter is rewritten by every decision, a month's row by every use: free space on their pages keeps the updates out of
# the indexes. A reservation leaves the index of the active ones once: what it leaves behind there is read again by every
# sweep until a vacuum.
STORAGE = """
ALTER TABLE ratelimits_counter SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                                    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ratelimits_charge SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
ALTER TABLE ratelimits_usagetracking SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                                          autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ratelimits_usagereservation SET (autovacuum_vacuum_scale_factor = 0.01,
                                             autovacuum_vacuum_threshold = 10000);
"""

# Limits belong to the installation and their counters to whom the provider counts.
OF_ALL = ('limit', 'limitoverride', 'counter', 'costestimate')


class Migration(migrations.Migration):
    initial = True
    replaces = [('ratelimits', name) for name in (
        '0001_limits_and_counters',
        '0002_counter_storage',
        '0003_no_saturated_percent',
        '0004_longer_counter_keys',
        '0005_allowances',
        '0006_allowance_storage',
        '0007_usage_list_indexes',
        '0008_usage_permissions',
        '0009_refusals_of_months',
        '0010_allowance_alerts',
        '0011_row_security',
        '0012_sealed_route_secret',
        '0013_pressure_before',
        '0014_unlimited_calls',
        '0015_caps_are_of_keys',
        '0016_outage_alerts',
        '0017_measured_ratios',
        '0018_alert_of_unserved_kinds',
        '0019_alert_channels_and_silences',
        '0020_alert_of_forgotten_pauses',
        '0021_alert_of_the_horizon',
    )]

    dependencies = [('tenancy', '0001_initial')]

    operations = [
        # Tables
        migrations.CreateModel(
            name='Limit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(help_text='Shown wherever the limit binds.', max_length=100, unique=True)),
                ('service', models.CharField(help_text='The external API, as its handlers name it: google-sheets.', max_length=64)),
                ('call_type', models.CharField(choices=[('read', 'Read'), ('write', 'Write'), ('any', 'Any')], default='any', max_length=5)),
                ('scope', models.CharField(choices=[('global', 'everyone together'), ('project', 'Project'), ('user', 'User'), ('project_user', 'user of a project')], default='project', max_length=12)),
                ('model', models.CharField(blank=True, help_text='Only calls of this model. Empty: of every model.', max_length=100)),
                ('per_model', models.BooleanField(default=False, help_text='The provider counts each model by itself.')),
                ('unit', models.CharField(choices=[('requests', 'Requests'), ('tokens', 'Tokens'), ('in_flight', 'calls in flight')], default='requests', max_length=9)),
                ('algorithm', models.CharField(choices=[('sliding_window', 'Sliding Window'), ('token_bucket', 'Token Bucket'), ('leaky_bucket', 'Leaky Bucket'), ('fixed_window', 'Fixed Window'), ('concurrency', 'Concurrency')], default='sliding_window', max_length=14)),
                ('capacity', models.FloatField(help_text="In the limit's unit: a window's cap, a bucket's burst, or calls in flight. 0 rejects every call.", validators=[MinValueValidator(0)])),
                ('refill_per_second', models.FloatField(blank=True, help_text='Of a bucket.', null=True, validators=[MinValueValidator(1e-06)])),
                ('window_seconds', models.FloatField(blank=True, default=60, help_text='Of a window.', null=True, validators=[MinValueValidator(0.001)])),
                ('provider_quota', models.FloatField(blank=True, help_text='What the provider allows in a window. A bucket is held against it: burst + window x rate.', null=True, validators=[MinValueValidator(0)])),
                ('slack_seconds', models.FloatField(blank=True, help_text='How much later than others a call may arrive. Empty: half a second for a minute.', null=True, validators=[MinValueValidator(0)])),
                ('reset_zone', models.CharField(blank=True, help_text='Time zone at whose midnight a daily quota is reset: America/Los_Angeles.', max_length=64)),
                ('guard_seconds', models.FloatField(default=0.5, help_text='Calls this close to a reset count before and after it: clocks differ.', validators=[MinValueValidator(0)])),
                ('lease_seconds', models.FloatField(default=600, help_text='A call in flight frees its place by itself after so long. Longer than the longest call.', validators=[MinValueValidator(1)])),
                ('headroom_percent', models.FloatField(default=0, help_text='Left unused, for programs that share the quota without asking here.', validators=[MinValueValidator(0), MaxValueValidator(99)])),
                ('notice_percent', models.PositiveSmallIntegerField(default=60, validators=[MaxValueValidator(100)])),
                ('warning_percent', models.PositiveSmallIntegerField(default=80, validators=[MaxValueValidator(100)])),
                ('clears_late_seconds', models.PositiveIntegerField(default=3600, help_text='A queue behind the limit that takes longer than this to clear is a warning.')),
                ('fail_open', models.BooleanField(default=False, help_text="Calls proceed while the limiter's database is out of reach. Off: they are deferred.")),
                ('shadow', models.BooleanField(default=False, help_text="Counts and reports what it would refuse, but blocks nothing. Only a provider's refusal holds calls back for a while.")),
                ('enabled', models.BooleanField(default=True)),
                ('learns_caps', models.BooleanField(default=False, help_text='A cap that the provider states is taken over at once. Off: it waits for an operator.')),
                ('proposed_at', models.DateTimeField(editable=False, help_text='When a refusal last asked for it; null once somebody has changed it.', null=True)),
                ('note', models.TextField(blank=True, help_text='Where the figure comes from; who confirmed it.')),
                ('updated_at', models.DateTimeField(db_default=Now(), editable=False)),
            ],
            options={
                'ordering': ('service', 'name'),
                'permissions': [
                    ('steer_counter', 'Can clear and cool down counters'),
                    ('acknowledge_alert', 'Can acknowledge alerts'),
                ],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('notice_percent__lte', models.F('warning_percent'))), name='limit_thresholds_ascend'),
                ],
            },
        ),
        migrations.CreateModel(
            name='LimitOverride',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='As the counter shows it: project:acme, or project:acme/user:…', max_length=321)),
                ('capacity', models.FloatField(validators=[MinValueValidator(0)])),
                ('refill_per_second', models.FloatField(blank=True, null=True, validators=[MinValueValidator(1e-06)])),
                ('note', models.TextField(blank=True)),
                ('limit', models.ForeignKey(on_delete=models.CASCADE, related_name='overrides', to='ratelimits.limit')),
            ],
            options={
                'ordering': ('limit', 'key'),
                'constraints': [models.UniqueConstraint(fields=('limit', 'key'), name='limit_override_once')],
            },
        ),
        migrations.CreateModel(
            name='Counter',
            fields=[
                ('id', models.CharField(max_length=330, primary_key=True, serialize=False)),
                ('key', models.CharField(max_length=321)),
                ('state', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('blocked_until', models.DateTimeField(help_text='A cool-down after the provider pushed back, or by hand.', null=True)),
                ('blocked_reason', models.CharField(db_default='', default='', max_length=200)),
                ('pressure', models.FloatField(db_default=1, default=1, help_text='The part of the cap in use since a push-back.')),
                ('pressure_changed_at', models.DateTimeField(null=True)),
                ('alert_level', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='The highest threshold in percent whose alert is open.')),
                ('shadow_denials', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('updated_at', models.DateTimeField(db_default=Now())),
                ('limit', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.CASCADE, related_name='counters', to='ratelimits.limit')),
                ('pressure_before', models.FloatField(db_default=1, default=1, help_text='Before the refusals that led to it.')),
                ('proposed_capacity', models.FloatField(help_text="What the provider says this key's cap is.", null=True)),
                ('proposed_at', models.DateTimeField(null=True)),
            ],
            options={
                'permissions': [],
            },
        ),
        migrations.CreateModel(
            name='QuotaAlert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=KINDS, max_length=16)),
                ('severity', models.CharField(choices=[('notice', 'Notice'), ('warning', 'Warning'), ('critical', 'Critical')], max_length=8)),
                ('subject', models.CharField(max_length=330)),
                ('threshold', models.PositiveSmallIntegerField(default=0, help_text='Percent of the cap; 0 where there is none.')),
                ('message', models.TextField()),
                ('figures', models.JSONField(default=dict)),
                ('forecast_at', models.DateTimeField(help_text='When the cap is reached at this pace, or the queue clears.', null=True)),
                ('opened_at', models.DateTimeField(db_default=Now())),
                ('acknowledged_at', models.DateTimeField(null=True)),
                ('acknowledged_by', models.CharField(db_default='', default='', max_length=100)),
                ('resolved_at', models.DateTimeField(null=True)),
                ('notified_at', models.DateTimeField(null=True)),
                ('limit', models.ForeignKey(blank=True, null=True, on_delete=models.CASCADE, related_name='alerts', to='ratelimits.limit')),
            ],
            options={
                'ordering': ('-opened_at', '-id'),
                'indexes': [
                    models.Index(fields=['-opened_at', '-id'], name='quota_alert_opened_idx'),
                    models.Index(condition=models.Q(('notified_at', None)), fields=['id'], name='quota_alert_unsent_idx'),
                ],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('resolved_at', None)), fields=('kind', 'subject', 'threshold'), name='quota_alert_open_once'),
                ],
            },
        ),
        migrations.CreateModel(
            name='AlertSilence',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(blank=True, choices=KINDS, max_length=16)),
                ('project', models.CharField(blank=True, max_length=63)),
                ('until', models.DateTimeField(db_index=True)),
                ('reason', models.TextField()),
                ('created_by', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('limit', models.ForeignKey(blank=True, null=True, on_delete=models.CASCADE, related_name='silences', to='ratelimits.limit')),
            ],
            options={
                'verbose_name': 'silence',
                'ordering': ('-until', '-id'),
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('kind', ''), ('limit', None), ('project', ''), _negated=True), name='alert_silence_names_something'),
                ],
            },
        ),
        migrations.CreateModel(
            name='AlertRoute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('channel', models.CharField(choices=[('email', 'e-mail'), ('webhook', 'Webhook'), ('slack', 'Slack'), ('teams', 'Microsoft Teams'), ('pagerduty', 'PagerDuty')], max_length=9)),
                ('target', models.CharField(help_text='An e-mail address; a URL that takes a signed POST; the URL of an incoming webhook of Slack, or of a workflow of Teams; the integration key of a PagerDuty service (Events API v2).', max_length=500)),
                ('least_severity', models.CharField(choices=[('notice', 'Notice'), ('warning', 'Warning'), ('critical', 'Critical')], default='warning', max_length=8)),
                ('enabled', models.BooleanField(default=True)),
                ('last_error', models.TextField(blank=True, editable=False)),
                ('last_sent_at', models.DateTimeField(editable=False, null=True)),
                ('rotated_at', models.DateTimeField(editable=False, null=True)),
                ('secret', models.BinaryField(null=True)),
                ('kinds', ArrayField(base_field=models.CharField(choices=KINDS, max_length=16), blank=True, db_default=[], default=list, help_text='Only these kinds. None chosen: all.', size=None)),
                ('project', models.CharField(blank=True, db_default='', default='', help_text='Only what is about this project. Empty: everything, also what is about none.', max_length=63)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Allowance',
            fields=[
                ('project', models.OneToOneField(on_delete=models.CASCADE, primary_key=True, related_name='allowance', serialize=False, to='tenancy.project')),
                ('unit', models.CharField(choices=[('requests', 'Requests'), ('tokens', 'Tokens')], default='requests', max_length=8)),
                ('quota', models.BigIntegerField(help_text='In the unit, for each user and month.', validators=[MinValueValidator(0), MaxValueValidator(1000000000000000)])),
                ('policy', models.CharField(choices=[('strict', 'strict: nothing is reserved beyond the quota'), ('record_overage', 'record overage: reservations pass the quota and say so')], default='strict', max_length=14)),
                ('time_zone', models.CharField(default='UTC', help_text='Where the month begins at midnight: Europe/Vienna.', max_length=64)),
                ('reservation_seconds', models.PositiveIntegerField(default=300, help_text='A reservation that nobody confirmed is given back after so long. Longer than the longest call.', validators=[MinValueValidator(1), MaxValueValidator(86400)])),
                ('updated_at', models.DateTimeField(db_default=Now(), editable=False)),
            ],
            options={
                'ordering': ('project_id',),
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('quota__range', (0, 1000000000000000))), name='allowance_quota_in_range'),
                ],
            },
        ),
        migrations.CreateModel(
            name='AllowanceOverride',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('user_id', models.UUIDField()),
                ('quota', models.BigIntegerField(help_text="In the allowance's unit, for each month.", validators=[MinValueValidator(0), MaxValueValidator(1000000000000000)])),
                ('note', models.TextField(blank=True)),
                ('project', models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name='allowance_overrides', to='tenancy.project')),
            ],
            options={
                'ordering': ('project_id', 'user_id'),
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'user_id'), name='allowance_override_once'),
                    models.CheckConstraint(condition=models.Q(('quota__range', (0, 1000000000000000))), name='allowance_override_quota_in_range'),
                ],
            },
        ),
        migrations.CreateModel(
            name='UsageTracking',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('user_id', models.UUIDField()),
                ('month_year', models.CharField(help_text="YYYY-MM, in the allowance's time zone.", max_length=7)),
                ('quota', models.BigIntegerField(validators=[MinValueValidator(0), MaxValueValidator(1000000000000000)])),
                ('used', models.BigIntegerField(db_default=0, default=0)),
                ('reserved', models.BigIntegerField(db_default=0, default=0)),
                ('overage', models.GeneratedField(db_persist=True, expression=Greatest(CombinedExpression(models.F('used'), '-', models.F('quota')), 0), output_field=models.BigIntegerField())),
                ('level', models.GeneratedField(db_persist=True, expression=models.Case(models.When(then=models.Value(0), used=0), models.When(then=models.Value(101), used__gt=models.F('quota')), models.When(then=models.Value(100), used__gte=CombinedExpression(models.F('quota'), '-', CombinedExpression(CombinedExpression(models.F('quota'), '*', models.Value(0)), '/', models.Value(100)))), models.When(then=models.Value(80), used__gte=CombinedExpression(models.F('quota'), '-', CombinedExpression(CombinedExpression(models.F('quota'), '*', models.Value(20)), '/', models.Value(100)))), models.When(then=models.Value(60), used__gte=CombinedExpression(models.F('quota'), '-', CombinedExpression(CombinedExpression(models.F('quota'), '*', models.Value(40)), '/', models.Value(100)))), default=models.Value(0)), help_text='Percent of the quota reached: 60, 80, 100; 101: passed.', output_field=models.SmallIntegerField())),
                ('alerted_level', models.SmallIntegerField(db_default=0, default=0, help_text='The level that people were told.')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, related_name='usage_months', to='tenancy.project')),
                ('refused', models.IntegerField(db_default=0, default=0, help_text='Reservations refused for want of room.')),
                ('expired', models.IntegerField(db_default=0, default=0, help_text='Reservations that nobody confirmed in time.')),
            ],
            options={
                'verbose_name_plural': 'usage tracking',
                'permissions': [
                    ('correct_usage', 'Can correct usage and repair the ledger'),
                    ('export_usage', 'Can export usage'),
                ],
                'indexes': [
                    models.Index(condition=models.Q(('level', models.F('alerted_level')), _negated=True), fields=['id'], name='usage_tracking_untold_idx'),
                    models.Index(fields=['month_year', 'id'], name='usage_tracking_month_idx'),
                    models.Index(fields=['project', 'month_year', 'id'], name='usage_tracking_project_idx'),
                    models.Index(condition=models.Q(('level__gte', 80)), fields=['month_year', 'id'], name='usage_tracking_near_idx'),
                ],
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'user_id', 'month_year'), name='usage_tracking_once'),
                    models.CheckConstraint(condition=models.Q(('reserved__gte', 0), ('used__gte', 0)), name='usage_tracking_counts_nothing_below_zero'),
                ],
            },
        ),
        migrations.CreateModel(
            name='UsageReservation',
            fields=[
                ('id', models.UUIDField(default=new_reservation_id, editable=False, primary_key=True, serialize=False)),
                ('user_id', models.UUIDField()),
                ('month_year', models.CharField(help_text='The month it was made in, whenever its event comes.', max_length=7)),
                ('amount', models.BigIntegerField(validators=[MinValueValidator(1)])),
                ('expires_at', models.DateTimeField()),
                ('status', models.CharField(choices=[('active', 'Active'), ('confirmed', 'Confirmed'), ('cancelled', 'Cancelled'), ('expired', 'Expired')], db_default='active', default='active', max_length=9)),
                ('idempotency_key', models.CharField(max_length=200, null=True)),
                ('remaining', models.BigIntegerField(help_text='What was left after it; below 0: it passed the quota.')),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, related_name='usage_reservations', to='tenancy.project')),
            ],
            options={
                'ordering': ('-id',),
                'permissions': [('cancel_reservation', 'Can cancel reservations of users')],
                'indexes': [
                    models.Index(condition=models.Q(('status', 'active')), fields=['expires_at'], name='usage_reservation_active_idx'),
                ],
                'constraints': [
                    models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('project', 'idempotency_key'), name='usage_reservation_key_once'),
                    models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='usage_reservation_amount_positive'),
                ],
            },
        ),
        migrations.CreateModel(
            name='UsageEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('event_id', models.UUIDField(help_text='Chosen by whoever reports it: the same id counts once.')),
                ('user_id', models.UUIDField()),
                ('month_year', models.CharField(help_text='The month that it counts in.', max_length=7)),
                ('service', models.CharField(blank=True, max_length=64)),
                ('tokens', models.BigIntegerField(db_default=0, default=0)),
                ('amount', models.BigIntegerField(help_text="What it adds to `used`, in the allowance's unit of its time.")),
                ('occurred_at', models.DateTimeField()),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('reservation', models.UUIDField(help_text='The reservation that it named, live or not.', null=True)),
                ('over_limit', models.BooleanField(db_default=False, default=False)),
                ('correction', models.BooleanField(db_default=False, default=False, help_text='Made by an operator.')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, related_name='usage_events', to='tenancy.project')),
            ],
            options={
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['project', 'user_id', 'month_year'], name='usage_event_month_idx')],
                'constraints': [
                    models.UniqueConstraint(fields=('project', 'event_id'), name='usage_event_once'),
                    models.CheckConstraint(condition=models.Q(('amount__gte', 0), ('correction', True), _connector='OR'), name='usage_event_takes_nothing_back'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Charge',
            fields=[
                ('holder', models.CharField(help_text='`job:<id>:<token>` or `api:<project>:<key>`.', max_length=300, primary_key=True, serialize=False)),
                ('entries', models.JSONField()),
                ('granted_at', models.DateTimeField(db_default=Now())),
                ('expires_at', models.DateTimeField(help_text='Reclaimed after this: its holder has crashed.')),
            ],
            options={
                'indexes': [models.Index(fields=['expires_at'], name='charge_expires_idx')],
            },
        ),
        migrations.CreateModel(
            name='CallTally',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=Now())),
                ('service', models.CharField(max_length=64)),
                ('call_type', models.CharField(max_length=5)),
                ('model', models.CharField(default='', max_length=100)),
                ('project', models.CharField(default='', help_text='As the provider sees it.', max_length=100)),
                ('user', models.CharField(default='', help_text='As the provider sees it.', max_length=100)),
                ('kind', models.CharField(default='', max_length=100)),
                ('calls', models.PositiveIntegerField()),
                ('tokens', models.FloatField(help_text="The sum of the calls' costs.")),
                ('waited_seconds', models.FloatField(default=0, help_text='Summed over the calls, from wanting to go to going.')),
            ],
            options={
                'verbose_name_plural': 'call tallies',
                'indexes': [models.Index(fields=['service', 'at'], name='call_tally_service_idx')],
            },
        ),
        migrations.CreateModel(
            name='CostEstimate',
            fields=[
                ('id', models.CharField(help_text='`<kind>|<model>`', max_length=250, primary_key=True, serialize=False)),
                ('samples', models.JSONField(default=list, help_text='The last actual costs of the unknown part, oldest first.')),
                ('p90', models.FloatField(db_default=0, default=0)),
                ('updated_at', models.DateTimeField(db_default=Now())),
                ('ratios', models.JSONField(db_default=models.Value([], models.JSONField()), default=list, help_text='How many times as much the known part turned out to be, of the last calls.')),
            ],
        ),
        migrations.CreateModel(
            name='DecideAnswer',
            fields=[
                ('pk', models.CompositePrimaryKey('project_id', 'idempotency_key', blank=True, editable=False, primary_key=True, serialize=False)),
                ('project_id', models.CharField(max_length=63)),
                ('idempotency_key', models.CharField(max_length=200)),
                ('digest', models.CharField(help_text='SHA-256 of what was asked.', max_length=64)),
                ('answer', models.JSONField()),
                ('created_at', models.DateTimeField(db_default=Now())),
            ],
            options={
                'indexes': [models.Index(fields=['created_at'], name='decide_answer_age_idx')],
            },
        ),

        # Storage parameters
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),

        # Row security
        protect('ratelimits_decideanswer', OF_PROJECT),
        protect('ratelimits_allowance', OF_PROJECT, 'SELECT'),
        protect('ratelimits_allowanceoverride', OF_USER, 'SELECT'),
        protect('ratelimits_usagetracking', OF_USER, 'SELECT', 'INSERT', 'UPDATE'),
        protect('ratelimits_usagereservation', OF_USER, 'SELECT', 'INSERT', 'UPDATE'),
        protect('ratelimits_usageevent', OF_USER, 'SELECT', 'INSERT', 'UPDATE (over_limit)'),

        # Grants
        *[grant(f'TABLE ratelimits_{name}', 'SELECT') for name in OF_ALL],
    ]
