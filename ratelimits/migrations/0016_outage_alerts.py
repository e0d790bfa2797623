from typing import ClassVar

from django.db import migrations, models

KINDS = [
    ("usage", "usage crossed a threshold"),
    ("saturated", "work waits beyond a cap"),
    ("exceeded", "the provider refused, or the cap was passed"),
    ("unlimited", "the provider refused what no limit counts"),
    ("dead_letters", "dead letters grow"),
    ("oldest_ready", "ready work waits too long"),
    ("stuck_executor", "an executor is stuck"),
    ("outage", "a service does not answer"),
    ("failing", "most attempts fail"),
    ("charge_leak", "estimates were not settled"),
    ("allowance", "a user comes near the month's quota"),
    ("overage", "a user passed a strict quota"),
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("ratelimits", "0015_caps_are_of_keys")]

    operations: ClassVar = [
        migrations.AlterField("quotaalert", "kind", models.CharField(choices=KINDS, max_length=16)),
    ]
