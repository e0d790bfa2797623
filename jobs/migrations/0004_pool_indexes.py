from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [("jobs", "0003_pools")]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('crash_count__lt', 2), ('held', False), ('lane', None), ('pool__isnull', False), ('scheduled_at', None), ('status', 'queued')), fields=['pool', 'project', 'priority', 'eligible_since', 'id'], name='jobs_job_pool_ready_idx'),
        ),
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('pool__isnull', False), models.Q(('status', 'rate_limited'), models.Q(('scheduled_at', None), ('status', 'queued')), _connector='OR'), ('crash_count__lt', 2), ('held', False), ('lane__isnull', False)), fields=['pool', 'lane', 'priority', 'eligible_since', 'id'], name='jobs_job_pool_lane_idx'),
        ),
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('crash_count__gte', 2), ('held', False), ('pool__isnull', False), ('scheduled_at', None), ('status', 'queued')), fields=['pool', 'eligible_since', 'id'], name='jobs_job_pool_suspects_idx'),
        ),
    ]
