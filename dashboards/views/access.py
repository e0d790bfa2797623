"""Access to pages and their data, and the answer to people who have none."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, JsonResponse

from dashboards.live.viewer import MAY_VIEW, Viewer, narrowed, viewer_of_session
from queueops.core.errors import error_body

NOT_SIGNED_IN = error_body("not_signed_in", "Sign in again.")
NOT_ALLOWED = error_body("permission_denied", "You may not do this.")

Given = ParamSpec("Given")
Page = Callable[Concatenate[HttpRequest, Given], HttpResponse]


def is_operator(request: HttpRequest) -> bool:
    user = request.user
    return user.is_active and user.is_staff and user.has_perm(MAY_VIEW)


def operators_page(view: Page[Given]) -> Page[Given]:
    """Decorate a page for operators: visitors are sent to sign in, other people get 403."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: Given.args, **kwargs: Given.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        if not is_operator(request):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


def operators_data(permission: str = MAY_VIEW) -> Callable[[Page[Given]], Page[Given]]:
    """Decorate data for scripts: 401 and 403 are answered as JSON, so that a page can say what happened."""

    def decorate(view: Page[Given]) -> Page[Given]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: Given.args, **kwargs: Given.kwargs) -> HttpResponse:
            if not request.user.is_authenticated:
                return JsonResponse(NOT_SIGNED_IN, status=401)
            if not is_operator(request) or not request.user.has_perm(permission):
                return JsonResponse(NOT_ALLOWED, status=403)
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def producer_of(request: HttpRequest) -> Viewer | None:
    """Return whose work the producers' page shows: the key's project; for staff the project and user they chose."""
    viewer = viewer_of_session(request.session)
    if viewer is None:
        return None
    project = request.GET.get("project", "").replace("\0", "")[:63]
    if viewer.project_id is None and not project:
        return viewer
    user_id = _user_id(request.GET["user"]) if "user" in request.GET else None
    return narrowed(viewer, project_id=project or None, user_id=user_id)


def _user_id(text: str) -> UUID:
    """
    Raises:
        SuspiciousOperation: It is no id; if it were ignored, the page would show everybody's work.
    """
    try:
        return UUID(text)
    except ValueError:
        raise SuspiciousOperation("user") from None


def may(request: HttpRequest, *permissions: str) -> dict[str, bool]:
    """Return which of these the person may do, by the permission's last word: `{"pause_work": True}`."""
    user: Any = request.user
    return {name.rpartition(".")[2]: user.has_perm(name) for name in permissions}
