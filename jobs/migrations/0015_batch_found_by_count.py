from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0014_batch_lines_digest'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerbatch',
            name='found_by_count',
            field=models.BooleanField(db_default=False, default=False, help_text="Nothing but its count of lines says that it is the provider's batch."),
        ),
    ]
