from django.apps import AppConfig


class QuickSockets(AppConfig):
    name = "tests.dashboards.live.quick"
    label = "quick_sockets"

    def ready(self) -> None:
        from dashboards.live import socket

        socket.PING_SECONDS = 1.0
        socket.SILENT_SECONDS = 4.0
        socket.SLOW_SOCKET_SECONDS = 6.0
