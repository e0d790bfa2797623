from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork, RemoveIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made and removed beside running work

    dependencies = [('jobs', '0044_cut_off_index')]

    operations = [
        AddIndexBesideWork(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolution', None)), fields=['fingerprint', 'id'], include=('project',), name='jobs_deadletter_cause_idx'),
        ),
        AddIndexBesideWork(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('resolution', None)), fields=['batch_id', 'id'], include=('fingerprint',), name='jobs_deadletter_of_batch_idx'),
        ),
        RemoveIndexBesideWork(model_name='deadletter', name='jobs_deadletter_open_idx'),
        RemoveIndexBesideWork(model_name='deadletter', name='jobs_deadletter_batch_idx'),
    ]
