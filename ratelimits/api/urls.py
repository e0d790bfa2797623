"""The addresses of the limiter's API, below /api/v1/."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
