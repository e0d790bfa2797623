"""A key holds a project, a user and a model of 100 characters each."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("ratelimits", "0003_no_saturated_percent")]

    operations: ClassVar = [
        migrations.AlterField("counter", "id", models.CharField(max_length=330, primary_key=True, serialize=False)),
        migrations.AlterField("counter", "key", models.CharField(max_length=321)),
        migrations.AlterField(
            "limitoverride",
            "key",
            models.CharField(help_text="As the counter shows it: project:acme, or project:acme/user:…", max_length=321),
        ),
        migrations.AlterField("quotaalert", "subject", models.CharField(max_length=330)),
    ]
