from django.apps import AppConfig


class DoorConfig(AppConfig):
    name = "jobs.door"
    label = "door"
    verbose_name = "Doors of providers' clients"
