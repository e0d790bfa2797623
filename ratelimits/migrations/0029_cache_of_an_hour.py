from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ratelimits", "0028_known_zone"),
    ]

    operations = [
        migrations.AddField(
            model_name="spend",
            name="written_1h_tokens",
            field=models.BigIntegerField(help_text="Of that, what the cache keeps for an hour.", null=True),
        ),
        migrations.AlterField(
            model_name="price",
            name="unit",
            field=models.CharField(
                choices=[
                    ("input_tokens", "input tokens"),
                    ("cached_tokens", "input tokens from a cache"),
                    ("written_tokens", "input tokens put into a cache"),
                    ("written_1h_tokens", "input tokens put into a cache for an hour"),
                    ("output_tokens", "output tokens"),
                    ("requests", "requests"),
                ],
                max_length=20,
            ),
        ),
    ]
