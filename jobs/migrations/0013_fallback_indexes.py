from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [('jobs', '0012_fallback')]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('fallback_at__isnull', False), ('held', False), ('scheduled_at__isnull', False), ('status', 'rate_limited')), fields=['fallback_at'], name='jobs_job_fallback_idx'),
        ),
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('fallback_on_outage', True), ('held', False), ('status__in', ['queued', 'rate_limited', 'retried'])), fields=['service', 'project', 'target'], name='jobs_job_ways_idx'),
        ),
    ]
