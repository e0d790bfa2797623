from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    initial = True
    replaces = [('access', '0001_sign_in')]

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Authenticator',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('secret', models.BinaryField()),
                ('last_step', models.BigIntegerField(editable=False, help_text='Of the newest code used: none is taken twice.')),
                ('created_at', models.DateTimeField(db_default=Now(), editable=False)),
                ('rotated_at', models.DateTimeField(editable=False, null=True)),
                ('user', models.OneToOneField(on_delete=models.CASCADE, related_name='authenticator', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('reset_authenticator', "Can take away somebody's second factor")],
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='RecoveryCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(editable=False, max_length=64)),
                ('used_at', models.DateTimeField(editable=False, null=True)),
                ('authenticator', models.ForeignKey(on_delete=models.CASCADE, related_name='recovery_codes', to='access.authenticator')),
            ],
            options={
                'default_permissions': (),
                'constraints': [
                    models.UniqueConstraint(fields=('authenticator', 'digest'), name='access_recoverycode_digest'),
                ],
            },
        ),
        migrations.CreateModel(
            name='SignInCount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('purpose', models.CharField(choices=[('password', 'Password'), ('code', 'code of the second factor'), ('key', 'producer key')], max_length=16)),
                ('account', models.CharField(blank=True, help_text='A name that nobody has is kept as a digest: people mistype passwords.', max_length=150)),
                ('address', models.CharField(blank=True, help_text='Empty: from every address together.', max_length=64)),
                ('failures', models.PositiveIntegerField()),
                ('forget_at', models.DateTimeField(help_text='Then it counts for nothing, and what it locked is open again.')),
            ],
            options={
                'verbose_name': 'failed sign-in',
                'permissions': [('unlock_signincount', "Can unlock somebody's sign-in")],
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['forget_at'], name='access_signincount_forget_idx')],
                'constraints': [
                    models.UniqueConstraint(fields=('purpose', 'account', 'address'), name='access_signincount_identity'),
                ],
            },
        ),
    ]
