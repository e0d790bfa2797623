from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import OpClass
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models.functions import Now, Upper

from queueops.tenancy.models import default_scopes, default_user_scopes
from queueops.tenancy.row_security import OF_PROJECT, PROJECT, USER, columns, grant, protect, show_to_anonymous

SCOPES = [
    ('read', 'read jobs and batches'),
    ('submit', 'submit and cancel work'),
    ('operate', 'steer and requeue work'),
    ('decide', 'ask the limiter for calls of its own'),
    ('limits', 'give its project capacities of its own'),
    ('usage', 'reserve and report usage of allowances'),
]
USER_SCOPES = [
    ('read', 'read jobs and batches'),
    ('submit', 'submit and cancel work'),
    ('usage', 'reserve and report usage of allowances'),
]

# All but `secret`.
CREDENTIAL = ['id', 'name', 'service', 'quota_project', 'quota_user', 'base_url', 'created_at', 'rotated_at']
OWN_CREDENTIAL = """EXISTS (SELECT FROM tenancy_credential_projects AS allowed
                             WHERE allowed.credential_id = tenancy_credential.id)"""
# Limits belong to no project, and so do the entries about them: the API writes these and reads no more than a number.
ENTRY = f"project_id IN ('', {PROJECT})"


class Migration(migrations.Migration):
    initial = True
    replaces = [('tenancy', name) for name in (
        '0002_credential',
        '0003_limit_scopes',
        '0004_usage_scope',
        '0005_end_users',
        '0006_row_security',
        '0007_anonymous',
        '0008_scope_of_limits',
        '0009_secret_key_canary',
        '0010_user_labels',
    )]

    dependencies = [('audit', '0001_initial')]

    operations = [
        # Tables
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.CharField(help_text='Never changes.', max_length=63, primary_key=True, serialize=False, validators=[RegexValidator('^[a-z0-9][a-z0-9._-]{0,62}\\Z', 'Use 1 to 63 lower-case letters, digits, dots, dashes or underscores; begin with a letter or digit.')])),
                ('name', models.CharField(max_length=200)),
                ('weight', models.FloatField(db_default=1.0, default=1.0, help_text='Turns relative to the other projects: 2 gets twice the turns of 1.', validators=[MinValueValidator(0.01)])),
                ('max_waiting_jobs', models.PositiveIntegerField(db_default=5000000, default=5000000, help_text='Submissions beyond this many unfinished jobs are refused with 429.')),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('anonymous_read', models.BooleanField(db_default=False, default=False, help_text="Everybody may read this project's jobs and batches, without a key and without signing in.")),
                ('user_address', models.CharField(blank=True, db_default='', default='', help_text='Where your own pages show an end user: https://app.example.org/users/{user_id}. Pages link there.', max_length=500, validators=[RegexValidator('^https?://[^\\s{}]+\\{user_id\\}[^\\s{}]*\\Z', "An http or https address with {user_id} where the user's id belongs.")])),
            ],
            options={
                'ordering': ('id',),
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('weight__gt', 0)), name='project_weight_positive'),
                ],
            },
        ),
        migrations.CreateModel(
            name='UserLabel',
            fields=[
                ('pk', models.CompositePrimaryKey('project', 'user_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('user_id', models.UUIDField()),
                ('label', models.CharField(max_length=100)),
                ('project', models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name='+', to='tenancy.project')),
            ],
            options={
                'indexes': [
                    models.Index(OpClass(Upper('label'), name='text_pattern_ops'), name='tenancy_userlabel_find_idx'),
                ],
            },
        ),
        migrations.CreateModel(
            name='ProducerKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Who or what uses it.', max_length=200)),
                ('prefix', models.CharField(editable=False, help_text="The key's first characters, to recognise it.", max_length=16)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('scopes', ArrayField(base_field=models.CharField(choices=SCOPES, max_length=16), default=default_scopes, size=None)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, help_text='To the minute.', null=True)),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('project', models.ForeignKey(on_delete=models.CASCADE, related_name='keys', to='tenancy.project')),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, help_text='To one web process. Empty: QUEUEOPS_REQUESTS_PER_MINUTE.', null=True, validators=[MinValueValidator(1)])),
            ],
            options={
                'ordering': ('project_id', 'name'),
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('requests_per_minute__gt', 0)), name='producerkey_rate_positive'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Issuer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Which app or service it is.', max_length=200)),
                ('issuer', models.CharField(help_text='Exactly as the tokens say it in their iss.', max_length=500, unique=True)),
                ('audiences', ArrayField(base_field=models.CharField(max_length=200), help_text="One of them must be in a token's aud. Separated by commas.", size=None)),
                ('jwks_url', models.URLField(blank=True, help_text='Where its public keys are: tokens are signed with RS256 or ES256.', max_length=500)),
                ('secret', models.BinaryField(null=True)),
                ('leeway_seconds', models.PositiveSmallIntegerField(default=30, help_text='How far its clock may be off. A token is accepted so much longer than it says.', validators=[MaxValueValidator(300)])),
                ('scopes', ArrayField(base_field=models.CharField(choices=USER_SCOPES, max_length=16), default=default_user_scopes, help_text='What its users may do, each with what is their own.', size=None)),
                ('enabled', models.BooleanField(default=True, help_text='Off: its tokens are refused from the next request on.')),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('rotated_at', models.DateTimeField(editable=False, null=True)),
                ('jwks', models.JSONField(default=list, editable=False, help_text='The public keys that were fetched last.')),
                ('jwks_fetched_at', models.DateTimeField(editable=False, null=True)),
                ('jwks_tried_at', models.DateTimeField(editable=False, null=True)),
                ('jwks_error', models.CharField(blank=True, editable=False, help_text='Of the last try; empty: none.', max_length=300)),
                ('project', models.ForeignKey(on_delete=models.CASCADE, related_name='issuers', to='tenancy.project')),
            ],
            options={
                'ordering': ('project_id', 'name'),
                'permissions': [('try_issuer', "Can fetch an issuer's keys and try tokens")],
                'constraints': [
                    models.CheckConstraint(condition=models.Q(models.Q(('jwks_url', ''), ('secret__isnull', False)), models.Q(models.Q(('jwks_url', ''), _negated=True), ('secret', None)), _connector='OR'), name='issuer_one_kind_of_key'),
                    models.CheckConstraint(condition=models.Q(('leeway_seconds__lte', 300)), name='issuer_leeway_bounded'),
                    models.CheckConstraint(condition=models.Q(('audiences__len__gt', 0)), name='issuer_names_an_audience'),
                ],
            },
        ),
        migrations.CreateModel(
            name='Credential',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(help_text='How payloads name it.', max_length=100, unique=True)),
                ('service', models.CharField(help_text='The external API it opens: google-sheets, gemini.', max_length=64)),
                ('quota_project', models.CharField(blank=True, help_text="The provider's project that pays. Empty: the job's own project.", max_length=100)),
                ('quota_user', models.CharField(blank=True, help_text="The provider's user, such as a service account. Empty: the job's user.", max_length=100)),
                ('secret', models.BinaryField()),
                ('base_url', models.URLField(blank=True, help_text="Another address than the service's public one, such as a gateway or the sandbox.")),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('rotated_at', models.DateTimeField(editable=False, null=True)),
                ('projects', models.ManyToManyField(blank=True, help_text='Who may use it. Empty: nobody.', to='tenancy.project')),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='SecretKeyCanary',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ('signed', models.TextField(editable=False)),
                ('signed_at', models.DateTimeField(db_default=Now(), editable=False)),
            ],
            options={
                'constraints': [
                    models.CheckConstraint(condition=models.Q(('pk', 1)), name='secret_key_canary_is_one_row'),
                ],
            },
        ),

        # Row security
        protect('tenancy_project', f'id = {PROJECT}', 'SELECT'),
        protect('tenancy_producerkey', OF_PROJECT),
        protect('tenancy_issuer', OF_PROJECT),
        protect('tenancy_credential_projects', OF_PROJECT, 'SELECT'),
        protect('tenancy_credential', OWN_CREDENTIAL, columns('SELECT', CREDENTIAL)),
        # No end user reads or writes what operators call them.
        protect('tenancy_userlabel', f'{OF_PROJECT} AND {USER} IS NULL', 'SELECT', 'INSERT', 'UPDATE'),
        protect('jobs_auditentry', ENTRY, 'INSERT', columns('SELECT', ['id', 'created_at'])),
        show_to_anonymous('tenancy_project', f'id = {PROJECT} AND anonymous_read'),

        # Grants
        grant('SEQUENCE jobs_auditentry_number', 'USAGE'),
    ]
