from django.db import migrations

# A counter is rewritten by every decision: free space on its page keeps the update out of the index.
STORAGE = """
ALTER TABLE ratelimits_counter SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
                                    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE ratelimits_charge SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
"""

DEFAULTS = """
ALTER TABLE ratelimits_counter RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
                                      autovacuum_vacuum_cost_delay);
ALTER TABLE ratelimits_charge RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
"""


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0001_limits_and_counters")]

    operations = [migrations.RunSQL(STORAGE, DEFAULTS)]
