from django.db import migrations

# Without a default and therefore without rewriting the log; partitions to come are made like the log and have it too.
ADD_SERVICE = "ALTER TABLE jobs_jobevent ADD COLUMN service varchar(64)"
DROP_SERVICE = "ALTER TABLE jobs_jobevent DROP COLUMN service"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_lanes")]

    operations = [migrations.RunSQL(ADD_SERVICE, DROP_SERVICE)]
