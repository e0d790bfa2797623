from django.db import migrations, models

# The old column holds this when the payload is text. No schema of a payload takes it, so a worker of the release before
# gives such a job back and holds it, as it does with any payload of a later version: docs/adr/0035, docs/adr/0068.
BESIDE = '"see payload_text"'

# A catalogue's change each: no row is read or written.
COLUMNS = [
    "ALTER TABLE jobs_job ADD COLUMN payload_text text, ADD COLUMN result_text text,"
    f" ALTER COLUMN payload SET DEFAULT '{BESIDE}'",
    f"ALTER TABLE jobs_deadletter ADD COLUMN payload_text text, ALTER COLUMN payload SET DEFAULT '{BESIDE}'",
]
# Rows that have texts become readable for the release before, as far as jsonb takes them.
WITHOUT_COLUMNS = [
    "UPDATE jobs_job SET payload = payload_text::jsonb WHERE payload_text IS NOT NULL",
    "UPDATE jobs_job SET result = result_text::jsonb WHERE result_text IS NOT NULL",
    "UPDATE jobs_deadletter SET payload = payload_text::jsonb WHERE payload_text IS NOT NULL",
    "ALTER TABLE jobs_job DROP COLUMN payload_text, DROP COLUMN result_text, ALTER COLUMN payload DROP DEFAULT",
    "ALTER TABLE jobs_deadletter DROP COLUMN payload_text, ALTER COLUMN payload DROP DEFAULT",
]

# The release before runs on these tables, too, and knows the old columns alone. It buries jobs that have texts, requeues
# their dead letters, and erases their users. No statement of this release meets the conditions in WHEN, so none pays for a
# function.
OF_THE_RELEASE_BEFORE = [
    """
CREATE FUNCTION jobs_take_payload_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'jobs_deadletter' THEN
        SELECT payload_text INTO NEW.payload_text FROM jobs_job WHERE id = NEW.job_id;
    ELSE
        SELECT payload_text INTO NEW.payload_text FROM jobs_job WHERE id = NEW.origin_id;
    END IF;
    RETURN NEW;
END $$""",
    """
CREATE FUNCTION jobs_forget_payload_text() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.payload_text := NULL;
    IF TG_TABLE_NAME = 'jobs_job' THEN
        NEW.result_text := NULL;
    END IF;
    RETURN NEW;
END $$""",
    f"""
CREATE TRIGGER jobs_deadletter_payload_text BEFORE INSERT ON jobs_deadletter FOR EACH ROW
    WHEN (NEW.payload_text IS NULL AND NEW.payload = '{BESIDE}') EXECUTE FUNCTION jobs_take_payload_text()""",
    f"""
CREATE TRIGGER jobs_job_payload_text BEFORE INSERT ON jobs_job FOR EACH ROW
    WHEN (NEW.payload_text IS NULL AND NEW.origin_id IS NOT NULL AND NEW.payload = '{BESIDE}')
    EXECUTE FUNCTION jobs_take_payload_text()""",
    """
CREATE TRIGGER jobs_job_forgets_text BEFORE UPDATE OF payload ON jobs_job FOR EACH ROW
    WHEN (NEW.payload_text IS NOT NULL AND NEW.payload = '{}' AND OLD.payload <> '{}')
    EXECUTE FUNCTION jobs_forget_payload_text()""",
    """
CREATE TRIGGER jobs_deadletter_forgets_text BEFORE UPDATE OF payload ON jobs_deadletter FOR EACH ROW
    WHEN (NEW.payload_text IS NOT NULL AND NEW.payload = '{}' AND OLD.payload <> '{}')
    EXECUTE FUNCTION jobs_forget_payload_text()""",
]
WITHOUT = [
    "DROP TRIGGER jobs_deadletter_forgets_text ON jobs_deadletter",
    "DROP TRIGGER jobs_job_forgets_text ON jobs_job",
    "DROP TRIGGER jobs_job_payload_text ON jobs_job",
    "DROP TRIGGER jobs_deadletter_payload_text ON jobs_deadletter",
    "DROP FUNCTION jobs_forget_payload_text()",
    "DROP FUNCTION jobs_take_payload_text()",
]


def as_text(model: str, name: str) -> migrations.AlterField:
    return migrations.AlterField(model, name, models.TextField(db_column=f"{name}_text", null=True))


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0035_refused_calls'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(COLUMNS, WITHOUT_COLUMNS)],
            [as_text('job', 'payload'), as_text('job', 'result'), as_text('deadletter', 'payload')],
        ),
        migrations.RunSQL(OF_THE_RELEASE_BEFORE, WITHOUT),
    ]
