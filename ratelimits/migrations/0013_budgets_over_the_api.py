from django.db import migrations

from queueops.tenancy.row_security import grant


class Migration(migrations.Migration):

    dependencies = [
        ('ratelimits', '0012_cached_shares'),
    ]

    operations = [
        grant('TABLE ratelimits_budget', 'INSERT', 'UPDATE', 'DELETE'),
        # What is deleted with a budget; UPDATE only locks.
        grant('TABLE ratelimits_budgetperiod', 'UPDATE', 'DELETE'),
        grant('TABLE ratelimits_budgethold', 'SELECT', 'DELETE'),
    ]
