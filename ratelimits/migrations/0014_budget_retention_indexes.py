from django.db import migrations, models

from queueops.core.postgres.concurrent_index import AddIndexBesideWork


class Migration(migrations.Migration):
    atomic = False  # the indexes are made beside running work

    dependencies = [('ratelimits', '0013_budgets_over_the_api')]

    operations = [
        AddIndexBesideWork(
            model_name='budgetperiod',
            index=models.Index(fields=['starts_at'], name='budget_period_starts_idx'),
        ),
        AddIndexBesideWork(
            model_name='budgethold',
            index=models.Index(condition=models.Q(('lost', True)), fields=['expires_at'], name='budget_hold_lost_idx'),
        ),
    ]
