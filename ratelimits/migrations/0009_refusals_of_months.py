"""How many reservations of a month were refused, and how many nobody confirmed: metrics read no reservations."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("ratelimits", "0008_usage_permissions")]

    operations: ClassVar = [
        migrations.AddField(
            "usagetracking",
            "refused",
            models.IntegerField(db_default=0, default=0, help_text="Reservations refused for want of room."),
        ),
        migrations.AddField(
            "usagetracking",
            "expired",
            models.IntegerField(db_default=0, default=0, help_text="Reservations that nobody confirmed in time."),
        ),
        migrations.AlterField(
            "usagereservation",
            "remaining",
            models.BigIntegerField(help_text="What was left after it; below 0: it passed the quota."),
        ),
    ]
