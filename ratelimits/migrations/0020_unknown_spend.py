"""What is booked as unknown is found without reading the ledger."""

from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [("ratelimits", "0019_limit_reserves")]

    operations = [
        AddIndexBesideWork(
            model_name="spend",
            index=models.Index(
                condition=models.Q(("kind", "unknown")), fields=["project", "at"], name="spend_unknown_idx"
            ),
        ),
    ]
