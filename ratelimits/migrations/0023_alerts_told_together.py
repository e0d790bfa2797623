from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [("ratelimits", "0022_limits_of_one_project")]

    operations = [
        migrations.AddField(
            model_name="quotaalert",
            name="told_with",
            field=models.BigIntegerField(null=True, editable=False),
        ),
        AddIndexBesideWork(
            model_name="quotaalert",
            index=models.Index(
                fields=["told_with"],
                name="quota_alert_told_with_idx",
                condition=models.Q(("told_with__isnull", False)),
            ),
        ),
    ]
