from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [("jobs", "0009_batch_lane")]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('held', False), ('scheduled_at__isnull', False), ('status__in', ['queued', 'retried']), ('via', 'batch')), fields=['project', 'kind', 'service', 'credential', 'model', 'scheduled_at', 'id'], name='jobs_job_batch_lane_idx'),
        ),
    ]
