"""
Admin screens of uploaded files of jobs: a file is checked as a whole and shown, and submitted only on a person's yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from jobs.admin.batches.links import batch_link, batch_links
from jobs.features.forecast.admin import forecast_of_upload
from jobs.features.uploads import uploads
from jobs.handlers.registry import all_handlers
from jobs.models import Upload
from queueops.core.errors import QueueOpsError
from queueops.core.values.masking import masked_text, pretty
from queueops.screens import formatting
from queueops.screens.admin import PageAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.forms import ConfirmForm, ProjectField, offer, search_projects
from queueops.screens.paging import BoundedListMixin, as_uuid
from queueops.screens.verbs import ReadOnlyMixin, actor_of, ask, show_error
from queueops.tenancy.people import name_of

PERMISSION = "jobs.add_upload"
MAX_FILE_MB = uploads.MAX_UPLOAD_BYTES // 1_000_000
COLUMNS = (
    "Of a CSV file the first row names the columns: kind, priority, idempotency_key, user_id, scheduled_at, cost and so"
    " on; payload for all of it as JSON, payload.url for text at that place, payload.values:json for JSON there. Any"
    " other file has one JSON object a line, as the API takes them."
)


class UploadForm(ConfirmForm):
    file = forms.FileField(
        label="File",
        help_text=f"CSV (.csv, .tsv) or one JSON object a line (.ndjson, .jsonl); at most {MAX_FILE_MB} MB.",
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,.tsv,.ndjson,.jsonl,.json,.txt", "class": "qo-file"}),
    )
    project = ProjectField(empty_label=None)
    kind = forms.ChoiceField(
        label="Kind of jobs that name none", required=False, widget=UnfoldAdminSelectWidget, initial=""
    )
    name = forms.CharField(
        label="Name of the batch",
        required=False,
        max_length=200,
        help_text="Empty: the file's name.",
        widget=UnfoldAdminTextInputWidget,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kinds = [handler.kind for handler in all_handlers() if not handler.internal]
        search_projects(self)
        offer(self, "kind", kinds, none="none: each names its own")


_became = TypedAttribute[SafeString | str]("became")


@admin.register(Upload)
class UploadAdmin(ReadOnlyMixin, BoundedListMixin, PageAdmin):
    list_display = ("file_name", "of_project", "lines", "faulty", "became", "who", "age")
    list_defer = ("content", "errors", "sample")
    empty_title = "No files yet."
    empty_hint = "A file of jobs is checked first; you see what is wrong with which line before anything is submitted."

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm(PERMISSION))

    def get_urls(self) -> list[Any]:
        return [self.page_at("<path:object_id>/submit/", UploadAdmin.submit, "submit"), *super().get_urls()]

    faulty = column("not valid", lambda upload: upload.error_count)

    def prepare_rows(self, rows: list[Upload]) -> None:
        links = batch_links(row.batch_id for row in rows)
        for row in rows:
            _became.set(row, links[row.batch_id] if row.batch_id else "not submitted")

    became = column("batch", _became.of)

    who = column("by", lambda upload: name_of(upload.uploaded_by))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form, and check the whole file that it sends."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        sent = request.method == "POST"
        form = UploadForm(request.POST if sent else None, request.FILES if sent else None)
        if sent and form.is_valid():
            given = form.cleaned_data
            try:
                self._refuse_large(given["file"].size)
                upload = uploads.store_upload(
                    given["file"].read(),
                    project_id=given["project"].pk,
                    actor=actor_of(request),
                    file_name=given["file"].name,
                    name=given["name"],
                    default_kind=given["kind"],
                )
            except QueueOpsError as error:
                show_error(form, error)
            else:
                return HttpResponseRedirect(reverse("admin:jobs_upload_change", args=[upload.pk]))
        return ask(
            self,
            request,
            title="Upload jobs",
            form=form,
            button="Check the file",
            explains=f"Every line is checked and you see the result; nothing is submitted yet. {COLUMNS}",
            goes_back_to=reverse("admin:jobs_batch_changelist"),
        )

    def shown_of(self, request: HttpRequest, row: Upload) -> dict[str, Any]:
        shown = {**_page_of(row), "may_submit": self.has_add_permission(request)}
        if shown.get("good") and shown["may_submit"] and row.batch_id is None:
            shown |= forecast_of_upload(row, asked="forecast" in request.GET)
        return shown

    def submit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make the batch; a request other than a POST makes none."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        identifier = as_uuid(object_id)
        if identifier is None:
            raise Http404
        page = reverse("admin:jobs_upload_change", args=[identifier])
        if request.method != "POST":
            return HttpResponseRedirect(page)
        try:
            upload = uploads.submit_upload(identifier, actor=actor_of(request), partial="partial" in request.POST)
        except QueueOpsError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(page)
        messages.success(request, "Submitted. Its jobs start as limits allow.")
        return HttpResponseRedirect(reverse("admin:jobs_batch_change", args=[upload.batch_id]))

    @staticmethod
    def _refuse_large(size: int) -> None:
        """Refuse a file that is too large before it is read into memory."""
        if size > uploads.MAX_UPLOAD_BYTES:
            raise uploads.UploadTooLarge(
                f"The file has {size:,} bytes; at most {uploads.MAX_UPLOAD_BYTES:,} are taken here. Larger ones go"
                " through the API.",
                given_bytes=size,
                limit_bytes=uploads.MAX_UPLOAD_BYTES,
            )


def _page_of(upload: Upload) -> dict[str, Any]:
    good = upload.lines - upload.error_count
    return {
        "title": upload.file_name,
        "subtitle": upload.project_id,
        "upload": upload,
        "good": good,
        "bar": formatting.bar(100 * good / upload.lines, f"{good:,} of {upload.lines:,} are valid"),
        "batch": batch_link(upload.batch_id) if upload.batch_id else None,
        "who": name_of(upload.uploaded_by),
        "uploaded": formatting.ago(upload.created_at),
        "unlisted": upload.error_count - len(upload.errors),
        "rows_are": "row" if upload.format == Upload.Format.CSV else "line",
        "faults": _alike(upload.errors),
        "sample": [{**one, "payload": pretty(one["payload"], most=2_000)[0]} for one in upload.sample],
    }


def _alike(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Fold equal errors into a row with the first line and a count: many equal errors would hide a different error."""
    found: dict[str, dict[str, Any]] = {}
    for one in errors:
        fields = [(name, masked_text("; ".join(said))) for name, said in one["fields"].items()]
        fault = {"line": one["line"], "more": 0, "message": masked_text(one["message"]), "fields": fields}
        known = found.setdefault(f"{fault['message']} {fields}", fault)
        known["more"] += known is not fault
    return list(found.values())
