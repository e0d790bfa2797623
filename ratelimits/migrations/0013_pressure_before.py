from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0012_sealed_route_secret")]

    operations = [
        migrations.AddField(
            "counter",
            "pressure_before",
            models.FloatField(db_default=1, default=1, help_text="Before the refusals that led to it."),
        )
    ]
