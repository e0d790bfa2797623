from django.db import migrations

from queueops.tenancy.row_security import OF_SHOWN_PROJECT, grant, show_to_anonymous
from queueops.tenancy.scope import ANONYMOUS_ROLE


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_row_security"), ("tenancy", "0007_anonymous")]

    operations = [
        *[show_to_anonymous(f"jobs_{name}", OF_SHOWN_PROJECT) for name in ("batch", "job", "jobevent", "jobcount")],
        grant("TABLE jobs_agingrule", "SELECT", role=ANONYMOUS_ROLE),  # by it a job's effective priority is told
    ]
