"""Where assistants connect."""

from django.urls import URLPattern, path

from .views import AssistantView

# Both spellings: a redirect from one to the other would lose the body.
urlpatterns: list[URLPattern] = [path("mcp/", AssistantView.as_view()), path("mcp", AssistantView.as_view())]
