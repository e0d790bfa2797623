from django.db import migrations

from queueops.tenancy.row_security import PROJECT, show_to_anonymous


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0006_row_security")]

    operations = [show_to_anonymous("tenancy_project", f"id = {PROJECT} AND anonymous_read")]
