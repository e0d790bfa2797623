from django.db import migrations

# A month's row is rewritten by every use: free space on its page keeps the update out of its indexes. A reservation
# leaves the index of the active ones once: what it leaves behind there is read again by every sweep until a vacuum.
STORAGE = """
ALTER TABLE ratelimits_usagetracking SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                                          autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ratelimits_usagereservation SET (autovacuum_vacuum_scale_factor = 0.01,
                                             autovacuum_vacuum_threshold = 10000);
"""

DEFAULTS = """
ALTER TABLE ratelimits_usagetracking RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
                                            autovacuum_vacuum_cost_delay);
ALTER TABLE ratelimits_usagereservation RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
"""


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0005_allowances")]

    operations = [migrations.RunSQL(STORAGE, DEFAULTS)]
