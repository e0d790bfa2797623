from django.apps import AppConfig


class DoorConfig(AppConfig):
    name = "jobs.door"
    label = "door"
    verbose_name = "Doors of providers' clients"

    def ready(self) -> None:
        from jobs.services.submit.documents.files import read_files_by

        from .files import read_file

        read_files_by(read_file)
