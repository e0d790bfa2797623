import django.contrib.postgres.fields
import django.core.validators
import django.db.models.functions.datetime
import uuid
from django.db import migrations, models

from queueops.tenancy.row_security import grant


class Migration(migrations.Migration):

    dependencies = [("jobs", "0002_reconcile")]

    operations = [
        migrations.CreateModel(
            name='Pool',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_-]*\\Z', "A pool's name has small letters, digits, - and _ only, such as llm-slow.")])),
                ('services', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^([A-Za-z0-9_][A-Za-z0-9_.:/-]*\\*?|\\*)\\Z', '%(value)s is no name: letters, digits, and . _ : / - within, with * at its end for all that begin so.')]), blank=True, default=list, help_text='Such as gemini, openai. Separated by commas; * at the end of one stands for all that begin so. Empty: all.', size=100)),
                ('kinds', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^([A-Za-z0-9_][A-Za-z0-9_.:/-]*\\*?|\\*)\\Z', '%(value)s is no name: letters, digits, and . _ : / - within, with * at its end for all that begin so.')]), blank=True, default=list, help_text='Such as google_sheets.*, http.request. Separated by commas; * at the end of one stands for all that begin so. Empty: all.', size=100)),
                ('projects', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^([A-Za-z0-9_][A-Za-z0-9_.:/-]*\\*?|\\*)\\Z', '%(value)s is no name: letters, digits, and . _ : / - within, with * at its end for all that begin so.')]), blank=True, default=list, help_text='Of these projects only. Separated by commas; * at the end of one stands for all that begin so. Empty: all.', size=100)),
                ('place', models.PositiveSmallIntegerField(default=100, help_text='Where several pools name a job, it belongs to that with the lowest place.')),
                ('served_at', models.DateTimeField(editable=False, help_text='When a live cluster was seen last.', null=True)),
            ],
            options={
                'ordering': ('place', 'name'),
            },
        ),
        migrations.CreateModel(
            name='PoolSweep',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('xid', models.BigIntegerField()),
                ('after', models.UUIDField(default=uuid.UUID('00000000-0000-0000-0000-000000000000'))),
                ('passes', models.PositiveSmallIntegerField(db_default=0, default=0)),
            ],
        ),
        migrations.AddField(
            model_name='executor',
            name='pool',
            field=models.CharField(db_default='', default='', help_text='Empty: it serves all jobs.', max_length=40),
        ),
        migrations.AddField(
            model_name='job',
            name='pool',
            field=models.CharField(help_text='Of the workers that carry it out. Empty: none names it. Null: there are none.', max_length=40, null=True),
        ),
        migrations.AddConstraint(
            model_name='poolsweep',
            constraint=models.CheckConstraint(condition=models.Q(('id', 1)), name='jobs_poolsweep_one_row'),
        ),
        grant("TABLE jobs_pool", "SELECT"),  # insert_jobs.sql names the job's pool
    ]
