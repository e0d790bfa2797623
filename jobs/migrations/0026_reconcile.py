from django.db import migrations

from jobs.models.guard import guard_sql


class Migration(migrations.Migration):
    dependencies = [("jobs", "0025_drop_event_type_index")]

    operations = [migrations.RunSQL(guard_sql(), migrations.RunSQL.noop)]
