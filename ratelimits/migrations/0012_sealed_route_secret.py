from django.db import migrations, models

from queueops.tenancy.signing import seal_texts


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0011_row_security")]

    operations = [
        migrations.AddField("alertroute", "rotated_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField("alertroute", "sealed", models.BinaryField(null=True)),
        seal_texts("ratelimits.AlertRoute"),
        migrations.RemoveField("alertroute", "secret"),
        migrations.RenameField("alertroute", "sealed", "secret"),
    ]
