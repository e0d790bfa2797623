"""Where everything is in the address space."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", include("queueops.access.urls")),  # before the admin, whose login it replaces
    path("admin/", admin.site.urls),
    path("", include("queueops.api")),
    path("", include("dashboards.urls")),
]

handler400 = "queueops.api.answer_400"
handler403 = "queueops.api.answer_403"
handler404 = "queueops.api.answer_404"
handler500 = "queueops.api.answer_500"
