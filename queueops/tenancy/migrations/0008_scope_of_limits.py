import django.contrib.postgres.fields
from django.db import migrations, models

import queueops.tenancy.models

SCOPES = [
    ("read", "read jobs and batches"),
    ("submit", "submit and cancel work"),
    ("operate", "steer and requeue work"),
    ("decide", "ask the limiter for calls of its own"),
    ("limits", "give its project capacities of its own"),
    ("usage", "reserve and report usage of allowances"),
]


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0007_anonymous")]

    operations = [
        migrations.AlterField(
            model_name="producerkey",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(choices=SCOPES, max_length=16),
                default=queueops.tenancy.models.default_scopes,
                size=None,
            ),
        )
    ]
