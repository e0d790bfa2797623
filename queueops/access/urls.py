"""The addresses of signing in, below /admin/. The admin's own addresses follow."""

from django.urls import path

from queueops.access.views.invited import InvitedPage
from queueops.access.views.passkeys import passkeys_page
from queueops.access.views.provider import begin, callback, end
from queueops.access.views.set_up import second_factor_page
from queueops.access.views.sign_in import SignIn, SignOut, ask_for_code

app_name = "access"

urlpatterns = [
    path("login/", SignIn.as_view(), name="sign-in"),
    path("login/code/", ask_for_code, name="code"),
    path("login/invited/<uidb64>/<token>/", InvitedPage.as_view(), name="invited"),
    path("login/provider/", begin, name="provider"),
    path("login/provider/callback/", callback, name="provider-callback"),
    path("login/provider/end/", end, name="provider-end"),
    path("logout/", SignOut.as_view(), name="sign-out"),
    path("second-factor/", second_factor_page, name="second-factor"),
    path("second-factor/passkeys/", passkeys_page, name="passkeys"),
]
