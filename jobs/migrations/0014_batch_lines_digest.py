from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0013_fallback_indexes'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerbatch',
            name='lines_digest',
            field=models.CharField(blank=True, db_default='', default='', help_text='SHA-256 of the lines that its files hold.', max_length=64),
        ),
    ]
