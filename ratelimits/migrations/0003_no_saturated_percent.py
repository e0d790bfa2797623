"""What counts as saturated is that work waits, whatever the percentage; nothing read the figure."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("ratelimits", "0002_counter_storage")]

    operations: ClassVar = [
        migrations.RemoveConstraint("limit", "limit_thresholds_ascend"),
        migrations.RemoveField("limit", "saturated_percent"),
        migrations.AddConstraint(
            "limit",
            models.CheckConstraint(
                condition=models.Q(notice_percent__lte=models.F("warning_percent")), name="limit_thresholds_ascend"
            ),
        ),
    ]
