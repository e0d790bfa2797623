from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "queueops.access"
    label = "access"
    verbose_name = "Signing in"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        from queueops.tenancy import credentials

        from .models import Authenticator
        from .services import sessions

        credentials.also_rotate(Authenticator)
        user_logged_in.connect(sessions.begin_session, dispatch_uid="session age")
