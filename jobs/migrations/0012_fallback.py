from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0011_budget_wait'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='fallback_step',
            field=models.PositiveSmallIntegerField(db_default=0, default=0, help_text="Which of its payload's other ways it goes. 0: the first, as it names it."),
        ),
        migrations.AddField(
            model_name='job',
            name='fallback_reason',
            field=models.CharField(db_default='', default='', help_text='Why it went on the last.', max_length=20),
        ),
        migrations.AddField(
            model_name='job',
            name='fallback_at',
            field=models.DateTimeField(help_text='Until when it waits for a limit before it goes on another way. Null: it waits.', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='fallback_on_outage',
            field=models.BooleanField(db_default=False, default=False, help_text='It goes on another way when what it calls does not answer.'),
        ),
    ]
