from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [("jobs", "0021_lines_not_carried_out")]

    operations = [
        AddIndexBesideWork(
            model_name='job',
            index=models.Index(condition=models.Q(('held', True), ('status__in', ['queued', 'rate_limited', 'retried'])), fields=['project', 'kind', 'service'], name='jobs_job_held_kind_idx'),
        ),
    ]
