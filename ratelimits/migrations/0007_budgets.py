from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models.functions import Now

from queueops.tenancy.row_security import OF_PROJECT, protect

KINDS = [
    ('usage', 'usage crossed a threshold'),
    ('saturated', 'work waits beyond a cap'),
    ('exceeded', 'the provider refused, or the cap was passed'),
    ('unlimited', 'the provider refused what no limit counts'),
    ('dead_letters', 'dead letters grow'),
    ('oldest_ready', 'ready work waits too long'),
    ('stuck_executor', 'an executor is stuck'),
    ('outage', 'a service does not answer'),
    ('credential_refused', 'a provider refuses a credential of a pool'),
    ('provider_batch', 'a batch at a provider stands still or was refused'),
    ('failing', 'most attempts fail'),
    ('unserved', 'no worker carries out a kind'),
    ('forgotten', 'paused for long'),
    ('horizon', 'the database cannot clear up'),
    ('charge_leak', 'estimates were not settled'),
    ('allowance', "a user comes near the month's quota"),
    ('overage', 'a user passed a strict quota'),
    ('missing_price', 'calls cost what nobody knows'),
    ('budget', 'a budget comes near its end'),
]

# A period is rewritten by each claim and each end of a call: free space on its page keeps the updates out of the indexes.
STORAGE = """
ALTER TABLE ratelimits_budgetperiod SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                                         autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ratelimits_budgethold SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
"""


class Migration(migrations.Migration):

    dependencies = [
        ('ratelimits', '0006_provider_batch_alert'),
        ('tenancy', '0003_credential_pools'),
    ]

    operations = [
        migrations.AlterField(
            model_name='alertroute',
            name='kinds',
            field=ArrayField(base_field=models.CharField(choices=KINDS, max_length=32), blank=True, db_default=[], default=list, help_text='Only these kinds. None chosen: all.', size=None),
        ),
        migrations.AlterField(
            model_name='alertsilence',
            name='kind',
            field=models.CharField(blank=True, choices=KINDS, max_length=32),
        ),
        migrations.AlterField(
            model_name='quotaalert',
            name='kind',
            field=models.CharField(choices=KINDS, max_length=32),
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Shown wherever it has no room.', max_length=100)),
                ('scope', models.CharField(choices=[('project', 'the project'), ('each_user', 'each user'), ('user', 'one user'), ('batch', 'one batch')], default='project', max_length=9)),
                ('user_id', models.UUIDField(blank=True, help_text='Of one user: who.', null=True)),
                ('batch_id', models.UUIDField(blank=True, help_text='Of one batch: which.', null=True)),
                ('amount', models.BigIntegerField(validators=[MinValueValidator(0), MaxValueValidator(1000000000000000)])),
                ('period', models.CharField(choices=[('day', 'a day'), ('month', 'a month'), ('total', 'in all')], default='month', max_length=5)),
                ('time_zone', models.CharField(default='UTC', help_text='Where a day or month begins at midnight: Europe/Vienna.', max_length=64)),
                ('policy', models.CharField(choices=[('wait', 'wait: jobs beyond it are held until there is room'), ('reject', 'reject: jobs beyond it fail')], default='wait', max_length=6)),
                ('note', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('project', models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name='budgets', to='tenancy.project')),
            ],
            options={
                'ordering': ('project_id', 'name'),
            },
        ),
        migrations.CreateModel(
            name='BudgetPeriod',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('key', models.CharField(blank=True, default='', help_text='The user, where it is for each.', max_length=36)),
                ('starts_at', models.DateTimeField()),
                ('spent', models.BigIntegerField(db_default=0, default=0)),
                ('held', models.BigIntegerField(db_default=0, default=0)),
                ('alerted_level', models.SmallIntegerField(db_default=0, default=0, help_text='Percent that people were told of.')),
                ('created_at', models.DateTimeField(db_default=Now())),
                ('budget', models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name='periods', to='ratelimits.budget')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.CASCADE, related_name='+', to='tenancy.project')),
            ],
        ),
        migrations.CreateModel(
            name='BudgetHold',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('job_id', models.UUIDField()),
                ('token', models.BigIntegerField()),
                ('amount', models.BigIntegerField()),
                ('lost', models.BooleanField(db_default=False, default=False)),
                ('user_id', models.UUIDField(null=True)),
                ('batch_id', models.UUIDField(null=True)),
                ('provider', models.CharField(max_length=64)),
                ('model', models.CharField(db_default='', default='', max_length=100)),
                ('via', models.CharField(choices=[('live', 'live'), ('batch', "by the provider's batches")], db_default='live', default='live', max_length=5)),
                ('at', models.DateTimeField(help_text='When it was claimed.')),
                ('expires_at', models.DateTimeField(help_text='Lost after this: nobody can be at it any more.')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.CASCADE, related_name='+', to='tenancy.project')),
                ('period', models.ForeignKey(db_constraint=False, on_delete=models.DO_NOTHING, related_name='+', to='ratelimits.budgetperiod')),
            ],
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(fields=('project', 'name'), name='budget_name_once'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(('amount__range', (0, 1000000000000000))), name='budget_amount_in_range'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('batch_id', None), ('scope', 'user'), ('user_id__isnull', False)), models.Q(('batch_id__isnull', False), ('scope', 'batch'), ('user_id', None)), models.Q(('batch_id', None), ('scope__in', ['project', 'each_user']), ('user_id', None)), _connector='OR'), name='budget_scope_names_whom'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.UniqueConstraint(fields=('budget', 'key', 'starts_at'), name='budget_period_once'),
        ),
        migrations.AddConstraint(
            model_name='budgetperiod',
            constraint=models.CheckConstraint(condition=models.Q(('held__gte', 0)), name='budget_period_holds_nothing_below_zero'),
        ),
        migrations.AddIndex(
            model_name='budgethold',
            index=models.Index(fields=['expires_at'], name='budget_hold_expires_idx', condition=models.Q(('lost', False))),
        ),
        migrations.AddConstraint(
            model_name='budgethold',
            constraint=models.UniqueConstraint(fields=('job_id', 'token', 'period'), name='budget_hold_once'),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        protect('ratelimits_budget', OF_PROJECT, 'SELECT'),
        protect('ratelimits_budgetperiod', OF_PROJECT, 'SELECT'),
        protect('ratelimits_budgethold', OF_PROJECT),
    ]
