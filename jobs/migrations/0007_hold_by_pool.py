from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0006_epoch"),
    ]

    operations = [
        migrations.AddField(
            model_name='pauseswitch',
            name='pool',
            field=models.CharField(blank=True, db_default='', default='', help_text='Of a kind that no worker knows: in which pool.', max_length=40),
        ),
        migrations.RemoveConstraint(
            model_name='pauseswitch',
            name='jobs_pauseswitch_once',
        ),
        migrations.AddConstraint(
            model_name='pauseswitch',
            constraint=models.UniqueConstraint(fields=('scope', 'key', 'pool'), name='jobs_pauseswitch_once_a_pool'),
        ),
    ]
