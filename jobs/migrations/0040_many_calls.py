from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [('jobs', '0039_bulk_canary')]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('costs__has_key', 'calls'), ('first_attempt_at__isnull', False), ('status__in', ['dispatched', 'in_progress', 'queued', 'rate_limited', 'retried'])), fields=['batch'], name='jobs_job_many_calls_idx'),
        ),
    ]
