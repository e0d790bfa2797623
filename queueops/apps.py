from django.apps import AppConfig


class QueueOpsConfig(AppConfig):
    name = "queueops"
    label = "queueops"
    verbose_name = "QueueOps"
