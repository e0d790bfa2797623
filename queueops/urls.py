"""Where everything is in the address space."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/", include("queueops.api")),
]

handler400 = "queueops.api.answer_400"
handler403 = "queueops.api.answer_403"
handler404 = "queueops.api.answer_404"
handler500 = "queueops.api.answer_500"
