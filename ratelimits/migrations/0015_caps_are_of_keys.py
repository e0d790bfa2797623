from django.db import migrations, models

# Of which key another proposal was is not known. Its provider states it again.
MOVE = """
UPDATE ratelimits_counter AS counter
   SET proposed_capacity = held.proposed_capacity, proposed_at = held.proposed_at
  FROM ratelimits_limit AS held
 WHERE counter.limit_id = held.id AND counter.key = '*' AND held.proposed_capacity IS NOT NULL;
UPDATE ratelimits_limit SET proposed_at = NULL WHERE proposed_capacity IS NOT NULL;
"""


class Migration(migrations.Migration):
    dependencies = [("ratelimits", "0014_unlimited_calls")]

    operations = [
        migrations.AddField(
            "counter",
            "proposed_capacity",
            models.FloatField(null=True, help_text="What the provider says this key's cap is."),
        ),
        migrations.AddField("counter", "proposed_at", models.DateTimeField(null=True)),
        migrations.RunSQL(MOVE, migrations.RunSQL.noop),
        migrations.RemoveField("limit", "proposed_capacity"),
    ]
