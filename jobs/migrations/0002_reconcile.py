from django.db import migrations

from jobs.models.guard import guard_sql


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [migrations.RunSQL(guard_sql(), migrations.RunSQL.noop)]
