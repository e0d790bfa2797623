from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0041_scheduled_jobs"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="takes",
            field=models.JSONField(
                help_text="The values of its payload that come from other jobs' results. Null: there are none.",
                null=True,
            ),
        ),
    ]
