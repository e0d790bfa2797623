import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0015_batch_found_by_count'),
    ]

    operations = [
        migrations.AlterField(
            model_name='batchpolicy',
            name='complete_within_hours',
            field=models.PositiveIntegerField(blank=True, help_text='The deadline of jobs that name none. Empty: such jobs go live.', null=True, validators=[django.core.validators.MaxValueValidator(8784)]),
        ),
    ]
