from django.db import migrations, models
from django.db.models.functions import Now


def rename_content_type(apps, schema_editor):
    """Whoever was given the permission to see it keeps it."""
    apps.get_model("contenttypes", "ContentType").objects.filter(app_label="jobs", model="auditentry").update(
        app_label="audit"
    )


class Migration(migrations.Migration):
    """The table stays where it is; its model moves here from `jobs`."""

    initial = True
    dependencies = [("contenttypes", "0002_remove_content_type_name"), ("jobs", "0019_loop_held")]
    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="AuditEntry",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("project_id", models.CharField(blank=True, max_length=63)),
                        ("actor", models.CharField(max_length=100)),
                        ("action", models.CharField(max_length=60)),
                        ("target", models.CharField(max_length=200)),
                        ("before", models.JSONField(null=True)),
                        ("after", models.JSONField(null=True)),
                        ("moved", models.PositiveIntegerField(default=1, help_text="How many rows it changed.")),
                        ("reason", models.TextField(blank=True)),
                        ("address", models.CharField(blank=True, default="", help_text="Of who asked.", max_length=64)),
                        ("created_at", models.DateTimeField(db_default=Now())),
                    ],
                    options={
                        "verbose_name_plural": "audit entries",
                        "db_table": "jobs_auditentry",
                        "ordering": ("-id",),
                        "indexes": [models.Index(fields=["target", "-id"], name="jobs_auditentry_target_idx")],
                    },
                )
            ]
        ),
        migrations.RunPython(rename_content_type, migrations.RunPython.noop, elidable=True),
    ]
