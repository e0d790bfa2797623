from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models
from django.db.models.functions import Now

from queueops.tenancy.row_security import OF_USER, grant, protect

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
    ('failing', 'most attempts fail'),
    ('unserved', 'no worker carries out a kind'),
    ('forgotten', 'paused for long'),
    ('horizon', 'the database cannot clear up'),
    ('charge_leak', 'estimates were not settled'),
    ('allowance', "a user comes near the month's quota"),
    ('overage', 'a user passed a strict quota'),
    ('missing_price', 'calls cost what nobody knows'),
]


class Migration(migrations.Migration):

    dependencies = [
        ('ratelimits', '0004_credential_refused'),
        ('tenancy', '0002_project_move'),
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
            name='Price',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('provider', models.CharField(help_text='The service of the jobs, as limits name it: openai, gemini.', max_length=64)),
                ('model', models.CharField(help_text='As jobs name it.', max_length=100)),
                ('unit', models.CharField(choices=[('input_tokens', 'input tokens'), ('cached_tokens', 'input tokens from a cache'), ('output_tokens', 'output tokens'), ('requests', 'requests')], max_length=16)),
                ('via', models.CharField(choices=[('live', 'live'), ('batch', "by the provider's batches")], db_default='live', default='live', max_length=5)),
                ('amount', models.BigIntegerField(help_text='For a million, in millionths of the currency.', validators=[MinValueValidator(0), MaxValueValidator(1000000000000000)])),
                ('most_tokens', models.PositiveIntegerField(blank=True, help_text='Of output: the most that one call can bring. Budgets go by it where a job sets no maximum.', null=True)),
                ('valid_from', models.DateTimeField(db_default=Now(), help_text='Calls from then on cost this.')),
            ],
            options={
                'ordering': ('provider', 'model', 'via', 'unit', '-valid_from'),
                'constraints': [models.UniqueConstraint(fields=('provider', 'model', 'via', 'unit', 'valid_from'), name='price_once'), models.CheckConstraint(condition=models.Q(('amount__range', (0, 1000000000000000))), name='price_amount_in_range')],
            },
        ),
        migrations.CreateModel(
            name='Spend',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('job_id', models.UUIDField()),
                ('token', models.BigIntegerField(help_text='The fencing token of its claim.')),
                ('part', models.SmallIntegerField(db_default=0, default=0, help_text='Of several calls of one claim.')),
                ('kind', models.CharField(choices=[('call', 'counted by its provider'), ('unknown', 'nobody knows what it cost: the most that it can')], db_default='call', default='call', max_length=7)),
                ('user_id', models.UUIDField(null=True)),
                ('batch_id', models.UUIDField(null=True)),
                ('provider', models.CharField(max_length=64)),
                ('model', models.CharField(db_default='', default='', max_length=100)),
                ('via', models.CharField(choices=[('live', 'live'), ('batch', "by the provider's batches")], db_default='live', default='live', max_length=5)),
                ('at', models.DateTimeField(help_text='When the call was claimed: its prices are those of then.')),
                ('input_tokens', models.BigIntegerField(null=True)),
                ('cached_tokens', models.BigIntegerField(null=True)),
                ('output_tokens', models.BigIntegerField(null=True)),
                ('tokens', models.BigIntegerField(null=True)),
                ('requests', models.IntegerField(db_default=1, default=1)),
                ('money', models.BigIntegerField(help_text='In millionths of the currency; null: a price was missing.', null=True)),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=models.PROTECT, related_name='spends', to='tenancy.project')),
            ],
            options={
                'verbose_name_plural': 'spend',
                'ordering': ('-id',),
                'permissions': [('price_spend', 'Can price spend that had no price'), ('export_spend', 'Can export spend')],
                'indexes': [models.Index(fields=['project', 'at'], name='spend_project_idx'), models.Index(fields=['at'], name='spend_at_idx'), models.Index(condition=models.Q(('batch_id__isnull', False)), fields=['batch_id'], name='spend_batch_idx'), models.Index(condition=models.Q(('user_id__isnull', False)), fields=['project', 'user_id', 'at'], name='spend_user_idx'), models.Index(condition=models.Q(('money', None)), fields=['id'], name='spend_priceless_idx')],
                'constraints': [models.UniqueConstraint(fields=('job_id', 'token', 'part'), name='spend_call_once')],
            },
        ),
        grant('TABLE ratelimits_price', 'SELECT'),
        protect('ratelimits_spend', OF_USER, 'SELECT'),
    ]
