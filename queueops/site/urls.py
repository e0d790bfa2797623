"""The URLs of the whole installation."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

admin.autodiscover()

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", include("queueops.access.urls")),  # before the admin, whose login it replaces
    path("admin/", admin.site.urls),
    path("", include("queueops.site.api")),
    path("", include("queueops.assistant.urls")),
    path("", include("dashboards.urls")),
]

handler400 = "queueops.site.api.answer_400"
handler403 = "queueops.site.api.answer_403"
handler404 = "queueops.site.api.answer_404"
handler500 = "queueops.site.api.answer_500"
