import django.contrib.postgres.fields
import django.db.models.functions.datetime
from django.db import migrations, models

from queueops.tenancy.row_security import API_ROLE, OF_PROJECT, OF_SHOWN_PROJECT, protect, show_to_anonymous


class Migration(migrations.Migration):
    """Breakers of another key: what the old ones had counted is counted anew, and the jobs they parked are released."""

    dependencies = [("jobs", "0014_cluster_identity")]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, f"GRANT SELECT ON jobs_servicebreaker TO {API_ROLE}"),
        migrations.DeleteModel("servicebreaker"),
        migrations.CreateModel(
            name='ServiceBreaker',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=64)),
                ('target', models.CharField(blank=True, help_text='See jobs/lanes.py. Empty: the service itself.', max_length=400)),
                ('project_id', models.CharField(max_length=63, verbose_name='project')),
                ('failures', models.PositiveIntegerField(db_default=0, default=0, help_text='In a row: connect errors, broken connections, timeouts and 5xx answers.')),
                ('calls', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), default=list, help_text='The calls that failed, the first few.', size=None)),
                ('paths', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), default=list, help_text='The paths that failed.', size=None)),
                ('spared', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), default=list, help_text='Paths that failed while others answered: no outage is theirs.', size=None)),
                ('opened_at', models.DateTimeField(null=True)),
                ('closed_at', models.DateTimeField(help_text='When it closed last.', null=True)),
                ('probe_job_id', models.UUIDField(null=True)),
                ('probed', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), default=list, help_text='The last jobs sent as probes.', size=None)),
                ('probed_at', models.DateTimeField(null=True)),
                ('next_probe_at', models.DateTimeField(null=True)),
                ('probes', models.PositiveIntegerField(db_default=0, default=0, help_text='Probes sent since it opened.')),
                ('holds', models.PositiveIntegerField(db_default=0, default=0, help_text='Jobs that wait for its end; at most 10,000.')),
                ('last_error', models.TextField(db_default='', default='')),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'permissions': [('steer_servicebreaker', 'Can close outage breakers and send probes')],
            },
        ),
        migrations.AddField(
            model_name='job',
            name='path',
            field=models.IntegerField(db_default=0, default=0, help_text='What it calls there, as a hash. 0: there is nothing to tell apart.'),
        ),
        migrations.AddField(
            model_name='job',
            name='target',
            field=models.CharField(db_default='', default='', help_text='Where its call goes, see jobs/lanes.py. Empty: its service.', max_length=400),
        ),
        migrations.AddConstraint(
            model_name='servicebreaker',
            constraint=models.UniqueConstraint(fields=('service', 'target', 'project_id'), name='jobs_servicebreaker_once'),
        ),
        protect("jobs_servicebreaker", OF_PROJECT, "SELECT"),
        show_to_anonymous("jobs_servicebreaker", OF_SHOWN_PROJECT),
    ]
