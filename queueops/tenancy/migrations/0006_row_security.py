from django.db import migrations

from queueops.tenancy.row_security import OF_PROJECT, PROJECT, columns, protect

# All but `secret`.
CREDENTIAL = ["id", "name", "service", "quota_project", "quota_user", "base_url", "created_at", "rotated_at"]
OWN_CREDENTIAL = """EXISTS (SELECT FROM tenancy_credential_projects AS allowed
                             WHERE allowed.credential_id = tenancy_credential.id)"""


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0005_end_users")]

    operations = [
        protect("tenancy_project", f"id = {PROJECT}", "SELECT"),
        protect("tenancy_producerkey", OF_PROJECT),
        protect("tenancy_issuer", OF_PROJECT),
        protect("tenancy_credential_projects", OF_PROJECT, "SELECT"),
        protect("tenancy_credential", OWN_CREDENTIAL, columns("SELECT", CREDENTIAL)),
    ]
