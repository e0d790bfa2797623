from django.db import migrations, models

from jobs.models.guard import guard_sql
from queueops.tenancy.row_security import OF_PROJECT, protect


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_pool_indexes"), ("tenancy", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="RestoredJob",
            fields=[
                ("job_id", models.UUIDField(primary_key=True, serialize=False)),
                ("project_id", models.CharField(max_length=63)),
                ("first_day", models.DateField(help_text="Of its events.")),
                ("last_day", models.DateField()),
                ("kept_until", models.DateTimeField(db_index=True)),
            ],
        ),
        protect("jobs_restoredjob", OF_PROJECT),
        migrations.RunSQL(guard_sql(), migrations.RunSQL.noop),
    ]
