from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index of a big table is made beside its writers

    dependencies = [
        ('jobs', '0005_flow'),
    ]

    operations = [
        migrations.AddField(
            model_name='bulkoperation',
            name='next_at',
            field=models.DateTimeField(help_text='When its next chunk is due.', null=True),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='rows_per_minute',
            field=models.FloatField(help_text='At most so many. Null: as fast as the chunks go.', null=True),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='stop_at_failed_percent',
            field=models.PositiveSmallIntegerField(help_text='It ends when more of the requeued jobs than that fail again.', null=True),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='total_is_least',
            field=models.BooleanField(db_default=False, default=False, help_text='Only so many were counted; set right when it ends.'),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='turn',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Times it was handed out; tasks of earlier turns do nothing.'),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='operation_id',
            field=models.UUIDField(blank=True, help_text='The bulk operation that resolved it.', null=True),
        ),
        AddIndexConcurrently(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('operation_id__isnull', False)), fields=['operation_id', 'id'], name='jobs_deadletter_operation_idx'),
        ),
    ]
