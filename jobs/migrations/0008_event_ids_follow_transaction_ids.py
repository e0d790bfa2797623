from django.db import migrations

# A column's default is computed before the next one's: a transaction whose first write is an event would take the
# event's id first and its own id later. jobs/services/explain/event_log.py tells which events may still appear by the ids of
# transactions, which holds only where a transaction has one before it takes an event's.
XID_FIRST = """
ALTER TABLE jobs_jobevent
    ALTER COLUMN id SET DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('jobs_jobevent_id') END
"""
ID_FIRST = "ALTER TABLE jobs_jobevent ALTER COLUMN id SET DEFAULT nextval('jobs_jobevent_id')"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0007_saved_filters_and_uploads")]

    operations = [migrations.RunSQL(XID_FIRST, ID_FIRST)]
