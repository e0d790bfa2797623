from django.db import migrations

from queueops.tenancy.row_security import OF_PROJECT, OF_USER, grant, protect

# Limits belong to the installation and their counters to whom the provider counts.
OF_ALL = ("limit", "limitoverride", "counter", "costestimate")


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0010_allowance_alerts"), ("tenancy", "0006_row_security")]

    operations = [
        protect("ratelimits_decideanswer", OF_PROJECT),
        protect("ratelimits_allowance", OF_PROJECT, "SELECT"),
        protect("ratelimits_allowanceoverride", OF_USER, "SELECT"),
        protect("ratelimits_usagetracking", OF_USER, "SELECT", "INSERT", "UPDATE"),
        protect("ratelimits_usagereservation", OF_USER, "SELECT", "INSERT", "UPDATE"),
        protect("ratelimits_usageevent", OF_USER, "SELECT", "INSERT", "UPDATE (over_limit)"),
        *[grant(f"TABLE ratelimits_{name}", "SELECT") for name in OF_ALL],
    ]
