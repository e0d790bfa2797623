from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddUniqueBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [('jobs', '0025_unique_keys')]

    operations = [
        AddUniqueBesideWork(
            model_name='job',
            constraint=models.UniqueConstraint(condition=models.Q(('debounce_until', None), ('status__in', ['dispatched', 'in_progress', 'queued', 'rate_limited', 'retried']), ('unique_key__isnull', False)), fields=('project', 'unique_key'), name='jobs_job_unique_key'),
        ),
        AddUniqueBesideWork(
            model_name='job',
            constraint=models.UniqueConstraint(condition=models.Q(('debounce_until__isnull', False), ('fencing_token', 0), ('first_attempt_at', None), ('status__in', ['queued', 'rate_limited', 'retried']), ('unique_key__isnull', False)), fields=('project', 'unique_key'), name='jobs_job_debounce_key'),
        ),
    ]
