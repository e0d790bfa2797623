from django.db import migrations, models

from queueops.tenancy.row_security import grant


class Migration(migrations.Migration):

    dependencies = [
        ('ratelimits', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='ResumeRamp',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('started_at', models.DateTimeField(help_text='None: work is still paused.', null=True)),
                ('over_seconds', models.FloatField()),
                ('held_share', models.FloatField(help_text='It stands at this share. None: it grows.', null=True)),
                ('slots', models.PositiveIntegerField(help_text='What all workers can carry out at once.')),
                ('started_by', models.CharField(max_length=100)),
            ],
            options={
                'verbose_name': 'ramp',
                'permissions': [],
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='resume_ramp_once')],
            },
        ),
        grant("TABLE ratelimits_resumeramp", "SELECT"),
    ]
