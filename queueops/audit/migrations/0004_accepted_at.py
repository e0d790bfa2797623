from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):

    dependencies = [('audit', '0003_by_project')]

    operations = [
        migrations.AddField(
            model_name='auditstream',
            name='accepted_at',
            field=models.DateTimeField(db_default=Now(), help_text='When it took entries last, or was named.'),
        ),
    ]
