from django.db import migrations, models

from queueops.tenancy.row_security import columns, grant

# The API's role may read no secret, so it cannot keep the former one by itself.
KEEPS = (
    """
CREATE FUNCTION jobs_keep_former_secret() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.former_secret := OLD.secret;
    RETURN NEW;
END $$""",
    """
CREATE TRIGGER jobs_webhook_former_secret BEFORE UPDATE OF former_secret_until ON jobs_webhook FOR EACH ROW
    EXECUTE FUNCTION jobs_keep_former_secret()""",
)
KEEPS_NOT = (
    "DROP TRIGGER jobs_webhook_former_secret ON jobs_webhook",
    "DROP FUNCTION jobs_keep_former_secret()",
)


class Migration(migrations.Migration):

    dependencies = [('jobs', '0045_cause_indexes')]

    operations = [
        migrations.AddField(
            model_name='webhook',
            name='former_secret',
            field=models.BinaryField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='webhook',
            name='former_secret_until',
            field=models.DateTimeField(editable=False, help_text='Until then messages are signed with the former secret, too.', null=True),
        ),
        migrations.RunSQL(KEEPS, KEEPS_NOT),
        grant(
            'TABLE jobs_webhook',
            columns('SELECT', ['former_secret_until']),
            columns('UPDATE', ['secret', 'former_secret_until']),
        ),
    ]
