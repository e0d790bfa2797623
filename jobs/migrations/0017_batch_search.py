import django.contrib.postgres.fields
import django.db.models.functions.datetime
import jobs.models.job
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0016_batch_policy_hours_bound'),
        ('tenancy', '0003_credential_pools'),
    ]

    operations = [
        migrations.CreateModel(
            name='BatchSearch',
            fields=[
                ('id', models.UUIDField(default=jobs.models.job.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=100)),
                ('service', models.CharField(max_length=64)),
                ('credential', models.CharField(max_length=100)),
                ('made_before', models.DateTimeField(help_text='When the epoch began: what was made later has a row.')),
                ('judged', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=200), default=list, help_text="Provider's ids of batches that are none of ours.", size=None)),
                ('adopted', models.PositiveIntegerField(default=0, help_text='Batches that were found, and go on here.')),
                ('left_alone', models.PositiveIntegerField(default=0, help_text='Batches that an installation like this one made, of jobs that are not here.')),
                ('look_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='When it is looked at next.')),
                ('looked_at', models.DateTimeField(null=True)),
                ('faults', models.PositiveSmallIntegerField(default=0, help_text='Calls in a row that failed.')),
                ('error', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('closed_at', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name_plural': 'batch searches',
                'ordering': ('-id',),
            },
        ),
        migrations.AddField(
            model_name='providerbatch',
            name='is_kept',
            field=models.BooleanField(db_default=False, default=False, help_text='The provider may keep something of it that is to be deleted.'),
        ),
        migrations.AddField(
            model_name='providerbatch',
            name='uploads',
            field=models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Times that an upload of its lines began, whether or not it was answered.'),
        ),
        migrations.AddIndex(
            model_name='providerbatch',
            index=models.Index(condition=models.Q(('closed_at__isnull', False), ('is_kept', True)), fields=['look_at'], name='jobs_providerbatch_kept_idx'),
        ),
        migrations.AddConstraint(
            model_name='batchsearch',
            constraint=models.UniqueConstraint(fields=('kind', 'service', 'credential'), name='jobs_batchsearch_once'),
        ),
    ]
