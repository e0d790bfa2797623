from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the index is made beside running work

    dependencies = [
        ("ratelimits", "0030_service_tiers"),
    ]

    operations = [
        AddIndexBesideWork(
            model_name="spend",
            index=models.Index(
                condition=models.Q(("via", "priority")),
                fields=["project", "provider", "at"],
                name="spend_priority_idx",
            ),
        ),
    ]
