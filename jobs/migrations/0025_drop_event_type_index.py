from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("jobs", "0024_claim_in_one_move")]

    operations = [
        # No statement reads it, and each event paid for it.
        migrations.RunSQL(
            "DROP INDEX jobs_jobevent_type_idx",
            "CREATE INDEX jobs_jobevent_type_idx ON jobs_jobevent (event_type, created_at)",
        ),
    ]
