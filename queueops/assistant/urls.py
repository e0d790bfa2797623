"""Where assistants connect."""

from django.urls import URLPattern, path

from .views import AssistantView

# A redirect would lose the body.
urlpatterns: list[URLPattern] = [path("mcp/", AssistantView.as_view()), path("mcp", AssistantView.as_view())]
