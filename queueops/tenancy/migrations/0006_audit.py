import django.contrib.postgres.fields
from django.db import migrations, models

from queueops.tenancy.models import default_scopes
from queueops.tenancy.row_security import OF_PROJECT, USER, show_rows

SCOPES = [
    ('read', 'read jobs and batches'),
    ('submit', 'submit and cancel work'),
    ('operate', 'steer and requeue work'),
    ('decide', 'ask the limiter for calls of its own'),
    ('limits', 'give its project capacities of its own'),
    ('usage', 'reserve and report usage of allowances'),
    ('audit', "read its project's audit trail"),
]
ENTRY = ['id', 'project_id', 'actor', 'action', 'target', 'before', 'after', 'moved', 'reason', 'address', 'created_at']


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0003_by_project'),
        ('tenancy', '0005_encrypted'),
    ]

    operations = [
        migrations.AlterField(
            model_name='producerkey',
            name='scopes',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=SCOPES, max_length=16), default=default_scopes, size=None),
        ),
        # The table shows the API entries of no project, too, as far as it must to write them.
        show_rows('jobs_auditentry_of_project', 'jobs_auditentry', f'{OF_PROJECT} AND {USER} IS NULL', ENTRY),
    ]
