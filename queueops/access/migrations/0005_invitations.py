from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0004_personal_tokens'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='authenticator',
            options={'default_permissions': (), 'permissions': [('reset_authenticator', "Can take away somebody's second factor"), ('invite_user', 'Can invite people, with roles that hold no more than their own')]},
        ),
    ]
