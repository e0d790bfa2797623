from typing import Any

from django.db import migrations

INDEX = 'jobs_jobevent_trace_idx'
HOLDS = "(job_id) WHERE data ? 'traceparent'"


def add_beside_work(apps: Any, schema_editor: Any) -> None:
    """On each part beside running work, and then on the log as a whole: a partitioned table takes no index concurrently."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(f'CREATE INDEX IF NOT EXISTS {INDEX} ON ONLY jobs_jobevent {HOLDS}')
        cursor.execute(
            "SELECT part.oid::regclass::text FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid"
            " WHERE inhparent = 'jobs_jobevent'::regclass AND NOT EXISTS ("
            "     SELECT FROM pg_index JOIN pg_inherits AS attached ON attached.inhrelid = indexrelid"
            "      WHERE indrelid = part.oid AND attached.inhparent = %s::regclass)",
            [INDEX],
        )
        for (part,) in cursor.fetchall():
            name = f'{part}_trace_idx'
            cursor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS {name}')  # an attempt that was cut off leaves one
            cursor.execute(f'CREATE INDEX CONCURRENTLY {name} ON {part} {HOLDS}')
            cursor.execute(f'ALTER INDEX {INDEX} ATTACH PARTITION {name}')


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [('jobs', '0023_on_finish')]

    operations = [
        migrations.RunPython(
            add_beside_work,
            lambda apps, editor: editor.execute(f'DROP INDEX IF EXISTS {INDEX}'),
        ),
    ]
