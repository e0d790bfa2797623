from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork, RemoveIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made and removed beside running work

    dependencies = [('jobs', '0043_takes')]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('fallback_on_outage', True), ('held', False), ('status__in', ['queued', 'rate_limited', 'retried']), models.Q(('scheduled_at', None), ('status', 'rate_limited'), _connector='OR')), fields=['service', 'project', 'target'], name='jobs_job_cut_off_idx'),
        ),
        RemoveIndexBesideWork(model_name='job', name='jobs_job_ways_idx'),
    ]
