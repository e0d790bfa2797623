from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # as CREATE INDEX CONCURRENTLY wants it

    dependencies = [("jobs", "0008_event_ids_follow_transaction_ids")]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="user_id",
            field=models.UUIDField(
                blank=True, help_text="The end user who submitted it: all its jobs are theirs.", null=True
            ),
        ),
        AddIndexConcurrently(
            model_name="batch",
            index=models.Index(
                condition=models.Q(("user_id__isnull", False)),
                fields=["user_id", "id"],
                name="jobs_batch_user_idx",
            ),
        ),
    ]
