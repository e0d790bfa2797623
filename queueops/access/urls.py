"""The steps of signing in, below /admin/; the admin has the rest."""

from django.urls import path

from .set_up_views import second_factor_page
from .views import SignIn, ask_for_code

app_name = "access"

urlpatterns = [
    path("login/", SignIn.as_view(), name="sign-in"),
    path("login/code/", ask_for_code, name="code"),
    path("second-factor/", second_factor_page, name="second-factor"),
]
