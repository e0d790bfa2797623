from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [("jobs", "0015_breakers_of_targets")]

    operations = [
        AddIndexConcurrently(
            model_name='job',
            index=models.Index(condition=models.Q(('held', False), ('scheduled_at', None), ('status', 'rate_limited')), fields=['service', 'project', 'target'], name='jobs_job_outage_idx'),
        ),
    ]
