from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "queueops.access"
    label = "access"
    verbose_name = "Signing in"

    def ready(self) -> None:
        from django.contrib.auth.models import User
        from django.contrib.auth.signals import user_logged_in, user_logged_out
        from django.db.models.signals import m2m_changed, post_save

        from queueops.tenancy.secrets import credentials

        from . import roles
        from .models import Authenticator
        from .services import sessions, trail

        credentials.also_rotate(Authenticator)
        user_logged_in.connect(sessions.begin_session, dispatch_uid="session age")
        user_logged_out.connect(trail.tell_sign_out, dispatch_uid="trail of signing out")
        m2m_changed.connect(roles.make_staff, sender=User.groups.through, dispatch_uid="whoever has a role is staff")
        post_save.connect(trail.tell_password, sender=User, dispatch_uid="trail of passwords")
