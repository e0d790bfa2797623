from typing import Any

from django.db import migrations, models
from django.db.models.functions import Now

INDEX = 'jobs_auditentry_project_idx'
HOLDS = '(project_id, id DESC)'


def add_beside_work(apps: Any, schema_editor: Any) -> None:
    """On each month beside running work, and then on the trail as a whole: a partitioned table takes no index concurrently."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f'CREATE INDEX IF NOT EXISTS {INDEX} ON ONLY jobs_auditentry {HOLDS}')
        cursor.execute(
            "SELECT part.oid::regclass::text FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid"
            " WHERE inhparent = 'jobs_auditentry'::regclass AND NOT EXISTS ("
            "     SELECT FROM pg_index JOIN pg_inherits AS attached ON attached.inhrelid = indexrelid"
            "      WHERE indrelid = part.oid AND attached.inhparent = %s::regclass)",
            [INDEX],
        )
        for (part,) in cursor.fetchall():
            name = f'{part}_project_idx'
            cursor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS {name}')  # an attempt that was cut off leaves one
            cursor.execute(f'CREATE INDEX CONCURRENTLY {name} ON {part} {HOLDS}')
            cursor.execute(f'ALTER INDEX {INDEX} ATTACH PARTITION {name}')


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [('audit', '0002_stream')]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunPython(
                    add_beside_work,
                    lambda apps, editor: editor.execute(f'DROP INDEX IF EXISTS {INDEX}'),
                ),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name='auditentry',
                    index=models.Index(fields=['project_id', '-id'], name=INDEX),
                ),
            ],
        ),
        # The view itself is made by `queueops.tenancy`, which knows the projects.
        migrations.CreateModel(
            name='ProjectAuditEntry',
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
                ('address', models.CharField(blank=True, default='', help_text='Of who asked.', max_length=64)),
                ('created_at', models.DateTimeField(db_default=Now())),
            ],
            options={
                'db_table': 'jobs_auditentry_of_project',
                'ordering': ('-id',),
                'managed': False,
                'default_permissions': (),
            },
        ),
    ]
