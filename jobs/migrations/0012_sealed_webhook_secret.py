from django.db import migrations, models

from queueops.tenancy.signing import seal_texts


class Migration(migrations.Migration):
    dependencies = [("jobs", "0011_anonymous")]

    operations = [
        migrations.AddField("webhook", "rotated_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField("webhook", "sealed", models.BinaryField(null=True)),
        # Backwards the column comes back empty and is filled then.
        migrations.AlterField("webhook", "secret", models.CharField(max_length=100, null=True)),
        seal_texts("jobs.Webhook"),
        migrations.RemoveField("webhook", "secret"),
        migrations.RenameField("webhook", "sealed", "secret"),
        migrations.AlterField("webhook", "secret", models.BinaryField()),
    ]
