"""The ends of calls lock periods of budgets alone: no constraint locks the budgets, too."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('ratelimits', '0007_budgets'),
    ]

    operations = [
        migrations.AlterField(
            model_name='budgetperiod',
            name='budget',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='periods', to='ratelimits.budget'),
        ),
    ]
