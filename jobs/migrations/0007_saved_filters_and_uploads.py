import django.db.models.deletion
import django.db.models.functions.datetime
import jobs.models.job
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0006_paced_bulk_operations'),
        ('tenancy', '0002_credential'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='deadletter',
            options={'permissions': [('requeue_deadletter', 'Can requeue dead letters'), ('discard_deadletter', 'Can discard dead letters'), ('export_deadletter', 'Can export dead letters with unmasked payloads')]},
        ),
        migrations.CreateModel(
            name='SavedFilter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('screen', models.CharField(choices=[('job', 'jobs'), ('batch', 'batches'), ('deadletter', 'dead letters')], max_length=20)),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(help_text="The list's parameters, as its address has them.", max_length=2000)),
                ('shared', models.BooleanField(db_default=False, default=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_filters', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('share_savedfilter', 'Can share saved filters')],
            },
        ),
        migrations.CreateModel(
            name='Upload',
            fields=[
                ('id', models.UUIDField(default=jobs.models.job.new_id, editable=False, primary_key=True, serialize=False)),
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
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('batch_id', models.UUIDField(help_text='What was made of it.', null=True)),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uploads', to='tenancy.project')),
            ],
        ),
        migrations.AddConstraint(
            model_name='savedfilter',
            constraint=models.UniqueConstraint(fields=('owner', 'screen', 'name'), name='jobs_savedfilter_once'),
        ),
        migrations.AddIndex(
            model_name='upload',
            index=models.Index(fields=['created_at'], name='jobs_upload_created_idx'),
        ),
    ]
