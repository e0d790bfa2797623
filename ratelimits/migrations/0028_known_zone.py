from django.db import migrations

# A stored zone that the database does not know, or knows no more, is null: only its own row is out of order then.
FUNCTION = """
CREATE FUNCTION ratelimits_known_zone(zone text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM timezone(zone, 'epoch'::timestamptz);
    RETURN zone;
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN NULL;
END $$"""


class Migration(migrations.Migration):

    dependencies = [
        ('ratelimits', '0027_allowances_over_the_api'),
    ]

    operations = [
        migrations.RunSQL(FUNCTION, "DROP FUNCTION ratelimits_known_zone(text)"),
    ]
