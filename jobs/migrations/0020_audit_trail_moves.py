from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_from_jobs"), ("jobs", "0019_loop_held")]
    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("AuditEntry")])]
