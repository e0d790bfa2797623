import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import jobs.models.job
from django.db import migrations, models

from queueops.tenancy.row_security import OF_PROJECT, protect


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('tenancy', '0009_http_credentials'),
    ]

    operations = [
        migrations.CreateModel(
            name='DoorFile',
            fields=[
                ('id', models.UUIDField(default=jobs.models.job.new_id, editable=False, primary_key=True, serialize=False)),
                ('purpose', models.CharField(max_length=20)),
                ('file_name', models.CharField(max_length=200)),
                ('size_bytes', models.BigIntegerField()),
                ('created_by', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('expires_at', models.DateTimeField(help_text='When house-keeping deletes it.')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.project')),
            ],
        ),
        migrations.CreateModel(
            name='DoorFilePart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('content', models.BinaryField()),
                ('file', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='door.doorfile')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.project')),
            ],
        ),
        migrations.CreateModel(
            name='ModelRoute',
            fields=[
                ('id', models.UUIDField(default=jobs.models.job.new_id, editable=False, primary_key=True, serialize=False)),
                ('place', models.PositiveSmallIntegerField(default=0, help_text='The route with the lowest place that fits is taken.')),
                ('pattern', models.CharField(help_text='The name in the request, such as gpt-4o-mini; with * at its end every name that begins so.', max_length=100, validators=[django.core.validators.RegexValidator('\\A[^*\\x00-\\x20]*\\*?\\Z', 'A name without spaces; * only at its end.')], verbose_name='model')),
                ('provider', models.CharField(choices=[('openai', 'OpenAI, or a compatible server'), ('anthropic', 'Anthropic')], help_text='Whose protocol the server speaks.', max_length=10)),
                ('credential', models.CharField(help_text='A credential, or a pool of credentials, that the project may use.', max_length=100)),
                ('service', models.CharField(blank=True, help_text="By which limits it goes. Empty: those of the provider's name.", max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.project')),
            ],
            options={
                'ordering': ('project_id', 'place', 'pattern'),
            },
        ),
        migrations.CreateModel(
            name='DoorBatch',
            fields=[
                ('id', models.UUIDField(default=jobs.models.job.new_id, editable=False, primary_key=True, serialize=False)),
                ('door', models.CharField(choices=[('openai', 'OpenAI, or a compatible server'), ('anthropic', 'Anthropic')], max_length=10)),
                ('batch_id', models.UUIDField(help_text='What was made of it; null: its lines were refused.', null=True, unique=True)),
                ('file_id', models.UUIDField(help_text='Its input file; null: its lines came with the request.', null=True)),
                ('file_name', models.CharField(blank=True, max_length=200)),
                ('endpoint', models.CharField(max_length=100)),
                ('window', models.CharField(max_length=12)),
                ('complete_by', models.DateTimeField()),
                ('metadata', models.JSONField(null=True)),
                ('errors', models.JSONField(help_text='Why its lines were refused: line, code, message, param.', null=True)),
                ('error_count', models.PositiveIntegerField(default=0)),
                ('digest', models.CharField(help_text='By which the same request is known when it comes again.', max_length=64)),
                ('asked', models.CharField(help_text='The digest of what was asked, whatever its key.', max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('cancelled_at', models.DateTimeField(help_text='When its cancellation was asked for.', null=True)),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.project')),
            ],
            options={
                'verbose_name_plural': 'door batches',
                'indexes': [models.Index(fields=['project', '-id'], name='door_batch_project_idx'), models.Index(fields=['project', 'digest', 'created_at'], name='door_batch_digest_idx')],
            },
        ),
        migrations.CreateModel(
            name='DoorCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('job_id', models.UUIDField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenancy.project')),
            ],
            options={
                'indexes': [models.Index(fields=['project', 'digest', '-id'], name='door_call_digest_idx'), models.Index(fields=['created_at'], name='door_call_created_idx')],
            },
        ),
        migrations.AddIndex(
            model_name='doorfile',
            index=models.Index(fields=['project', '-id'], name='door_file_project_idx'),
        ),
        migrations.AddIndex(
            model_name='doorfile',
            index=models.Index(fields=['expires_at'], name='door_file_expires_idx'),
        ),
        migrations.AddConstraint(
            model_name='doorfilepart',
            constraint=models.UniqueConstraint(fields=('file', 'number'), name='door_part_once'),
        ),
        migrations.AddConstraint(
            model_name='modelroute',
            constraint=models.UniqueConstraint(fields=('project', 'provider', 'pattern'), name='door_route_once'),
        ),
        # The API's rights come with the first process of this version: queueops/tenancy/rights.py.
        *(
            protect(table, OF_PROJECT)
            for table in ('door_modelroute', 'door_doorfile', 'door_doorfilepart', 'door_doorcall', 'door_doorbatch')
        ),
    ]
