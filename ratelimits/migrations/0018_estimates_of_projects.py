from django.db import migrations, models

from queueops.tenancy.row_security import PROJECT, protect


class Migration(migrations.Migration):
    """
    What calls cost is learned for each project by itself.

    What was learned over all projects goes; the last release's processes, which run on for a while, find nothing and
    write rows of their own, which nobody reads.
    """

    dependencies = [
        ('ratelimits', '0017_audit_stream_alert'),
    ]

    operations = [
        migrations.AlterField(
            model_name='costestimate',
            name='id',
            field=models.CharField(help_text='`<project>|<service>|<kind>|<model>`', max_length=400, primary_key=True, serialize=False),
        ),
        migrations.RunSQL('DELETE FROM ratelimits_costestimate', migrations.RunSQL.noop),
        protect('ratelimits_costestimate', f"starts_with(id, {PROJECT} || '|')"),
    ]
