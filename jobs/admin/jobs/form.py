"""Makes a job from a form: the kind's schema gives the fields, and the price is shown before the job is submitted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.forms.boundfield import BoundField
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget

from jobs.admin.forms import MAX_EDITABLE
from jobs.features.forecast.admin import forecast_of_job
from jobs.handlers.registry import Handler, UnknownKind, all_handlers, find_handler
from jobs.models import DeadLetter, Job, RetryPolicy
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.run_again import kept_of, submit_by_hand
from jobs.services.submit.documents.accept_document import LineError
from jobs.services.submit.spec import JobSpec, parse_spec
from jobs.states import TERMINAL
from queueops.core.errors import IdempotencyKeyReused, QueueOpsError
from queueops.core.values.masking import MASK, masked, unmasked
from queueops.screens.forms import ProjectField, ReasonForm, offer, optional_reason, search_projects
from queueops.screens.verbs import actor_of, mark, row_named, show_page
from queueops.tenancy.secrets.credentials import usable_by

from .drawn import DrawnField, JsonObjectField, MomentField, Schema, draw, inlined, with_code

SUBMIT, AGAIN, REQUEUE = "jobs.add_upload", "jobs.run_again", "jobs.requeue_deadletter"
MAX_UNFOLDED = 8  # with more fields, only the required ones and the kind's `shown_first` are not folded
MOMENTS = ("scheduled_at", "complete_by", "expires_at")
SHOWN_FIRST = ("priority", "scheduled_at")
FOLDED = (
    *("idempotency_key", "complete_by", "via", "expires_at", "user_id", "user_label", "tags", "unique_key"),
    *("unique_in", "if_pending", "retry_policy", "cost", "model", "after", "on_failure"),
)
OUTCOMES = {
    "created": "Submitted. It starts as limits allow.",
    "duplicate": "It was submitted before: this is its job.",
    "pending": "This job has the unique key and has not ended: no other was made.",
    "replaced": "This job had the unique key and does the new work now.",
}


@dataclass(frozen=True)
class Opened:
    """
    The values that a form opens with.

    Attributes:
        payload: The payload of the job whose work is done again; None: there is none, or the person may not read it.
        job: Fields of JobSpec.
        fixed: Fields of JobSpec that the form does not show.
        shows: Fields of JobSpec that the form shows.
    """

    payload: Mapping[str, Any] | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    shows: Sequence[str] = (*SHOWN_FIRST, *FOLDED)


class ChooseForm(forms.Form):
    project = ProjectField(empty_label=None)
    kind = forms.ChoiceField(widget=UnfoldAdminSelectWidget)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        search_projects(self)
        offer(self, "kind", [handler.kind for handler in all_handlers() if not handler.internal])


class JobForm(forms.Form):
    """
    The fields of one job. A field of its payload is called `payload.<name>` here, as in errors of the services.

    The field `payload` takes the members of the payload that have no field of their own.
    """

    def __init__(
        self, data: Any, *, handler: Handler, project_id: str, opened: Opened, reason: forms.Field | None = None
    ) -> None:
        super().__init__(data)
        self.handler, self.project_id, self.opened = handler, project_id, opened
        self._first: list[str] = []
        self._draw_payload()
        self._draw_job()
        if reason:
            self.fields["reason"] = reason

    def _draw_payload(self) -> None:
        schema = _schema_of(self.handler)
        properties: Mapping[str, Any] = schema.get("properties", {})
        payload = self.opened.payload or {}
        names = {name: value for name, value in payload.items() if self._is_credential(name)}
        shown = {**masked(payload), **names}  # a credential's name is no secret, but masked() hides it
        required = schema.get("required", ())
        for name in sorted(properties, key=lambda name: name not in required):  # stable: keeps the schema's order
            choices = _credentials(self, payload.get(name)) if self._is_credential(name) else None
            drawn = draw(name, properties[name], is_asked=name in required, choices=choices, value=shown.get(name))
            self._add(f"payload.{name}", drawn, shown.get(name))
            if name in required or name in self.handler.shown_first or len(properties) <= MAX_UNFOLDED:
                self._first.append(f"payload.{name}")
        rest = {name: value for name, value in shown.items() if name not in properties}
        if rest or not properties or schema.get("additionalProperties"):
            words = "What else the payload holds, as a JSON object." if properties else "A JSON object."
            self._add("payload", JsonObjectField("Other fields" if properties else "Payload", words), rest or None)
            self._first += ["payload"] if rest or not properties else []

    def _is_credential(self, name: str) -> bool:
        return name == "credential" and self.handler.credential is not None

    def _draw_job(self) -> None:
        schema = JobSpec.model_json_schema()
        for name in self.opened.shows:
            if name == "via" and self.handler.batch is None:
                continue
            rule = inlined(schema["properties"][name], schema["$defs"])
            value = self.opened.job.get(name)
            choices = None
            if name == "retry_policy":
                choices = {policy: policy for policy in RetryPolicy.objects.values_list("pk", flat=True)}
            drawn = MomentField(name, rule) if name in MOMENTS else draw(name, rule, choices=choices)
            self._add(name, drawn, value)

    def _add(self, name: str, drawn: DrawnField, value: Any) -> None:
        self.fields[name] = drawn
        if value is not None:
            self.initial[name] = drawn.shown(value)

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for name, drawn in self.fields.items():
            if name in given and name.partition(".")[0] == "payload" and isinstance(drawn, DrawnField):
                given[name] = self._whole(name, drawn, given[name])
        if (rest := given.get("payload")) and (twice := json.loads(rest).keys() & _members(self.fields)):
            self.add_error("payload", f"{', '.join(sorted(twice))}: write it in its own field.")
        return given

    def _whole(self, name: str, drawn: DrawnField, text: str | None) -> str | None:
        """Return the typed value with masked secrets filled in; a value left as shown is the original, in full."""
        payload = self.opened.payload
        if payload is None:
            return text
        member = name.partition(".")[2]
        original = (
            payload.get(member)
            if member
            else {key: one for key, one in payload.items() if key not in _members(self.fields)}
        )
        before = drawn.typed(drawn.prepare_value(self.initial.get(name, drawn.initial)))
        if (member in payload or not member) and drawn.typed(self.data.get(name)) == before:
            return json.dumps(original, ensure_ascii=False) if member or original else None
        if text is None or MASK not in text:
            return text
        edited = json.loads(text)
        whole = unmasked({member: edited}, {member: original})[member] if member else unmasked(edited, original)
        text = json.dumps(whole, ensure_ascii=False)
        if MASK in text:
            self.add_error(name, "Write the secret in place of its mask: a mask is filled in again only where it was.")
        return text

    def job_text(self) -> str:
        """The job as a producer would send it: JSON, each part as it was typed."""
        given: dict[str, str | None] = self.cleaned_data
        parts = [
            f"{json.dumps(name)}:{given[f'payload.{name}']}"
            for name in _members(self.fields)
            if given[f"payload.{name}"]
        ]
        if inner := (given.get("payload") or "{}").strip()[1:-1].strip():
            parts.append(inner)
        fixed = {name: value for name, value in self.opened.fixed.items() if value not in (None, ())}
        own = {name: given[name] for name in self.opened.shows if given.get(name)}
        own |= {name: json.dumps(value, default=str) for name, value in fixed.items()}
        own |= {"kind": json.dumps(self.handler.kind), "payload": f"{{{','.join(parts)}}}"}
        return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in own.items())}}}"

    def tell(self, error: QueueOpsError | LineError) -> None:
        """Show each fault of an error at its field."""
        self.add_error(None, error.message)
        is_key = error.code == IdempotencyKeyReused.code
        fields = {"idempotency_key": ["Choose another, or leave it empty."]} if is_key else error.fields
        for path, faults in fields.items():
            steps = path.split(".")
            names = (".".join(steps[:length]) for length in range(len(steps), 0, -1))
            name = next((one for one in names if one in self.fields), None)
            inner = path[len(name) :].removeprefix(".") if name else path.removeprefix("payload").removeprefix(".")
            self.add_error(name, [f"{inner}: {fault}" if inner else fault for fault in faults])

    @property
    def wrong(self) -> list[BoundField]:
        return [one for one in self if one.errors]

    @property
    def sections(self) -> Iterator[dict[str, Any]]:
        """The parts of the page: shown fields, folded fields, and whether the folded fields must be open."""
        payload = [one for one in self if one.name.partition(".")[0] == "payload"]
        own = [self[name] for name in (*self.opened.shows, "reason") if name in self.fields]
        shown = (*SHOWN_FIRST, "reason")
        for title, parts, first in (("Payload", payload, self._first), ("Job", own, shown)):
            more = [one for one in parts if one.name not in first]
            yield {
                "title": title,
                "fields": [one for one in parts if one.name in first],
                "more": more,
                "names": ", ".join(str(one.label).lower() for one in more),
                "is_open": any(
                    one.errors or (one.name != "idempotency_key" and self.initial.get(one.name)) for one in more
                ),
            }


def _members(fields: Mapping[str, Any]) -> list[str]:
    """The members of the payload that have fields of their own."""
    return [name.removeprefix("payload.") for name in fields if name.startswith("payload.")]


def _schema_of(handler: Handler) -> Schema:
    try:
        schema = handler.schema.json_schema()
    except Exception:  # noqa: BLE001 - a type that has no JSON Schema: the payload is one JSON field
        return {}
    found: Schema = inlined(schema, schema.get("$defs", {}))
    return found


def _credentials(form: JobForm, given: Any) -> dict[str, str]:
    """The credentials that the project may use, by name, with their services."""
    service = form.handler.service if form.handler.credential_faults is None else None
    usable = {
        name: f"{name} ({'pool, ' if one.is_pool else ''}{one.service})"
        for name, one in sorted(usable_by(form.project_id).items())
        if not isinstance(service, str) or one.service == service
    }
    is_lost = isinstance(given, str) and given not in usable
    return {**usable, given: f"{given} (the project may not use it)"} if is_lost else usable


def new_job(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Ask for project and kind, then for the job; a GET never submits."""
    _ensure_may(request, SUBMIT)
    goes_back_to = reverse("admin:jobs_job_changelist")
    given = request.GET if {"project", "kind"} <= request.GET.keys() else None
    chosen = ChooseForm(given, initial=request.GET.dict())
    if not chosen.is_valid():
        return _page(model_admin, request, {"choose": chosen, "title": "New job", "goes_back_to": goes_back_to})
    project, handler = chosen.cleaned_data["project"].pk, find_handler(chosen.cleaned_data["kind"])
    opened = Opened(job={"idempotency_key": f"form-{uuid4()}"})
    form = JobForm(_sent(request), handler=handler, project_id=project, opened=opened, reason=optional_reason())

    def submit(spec: JobSpec) -> HttpResponse:
        return _submitted(request, form, spec)

    return _fill_in(
        model_admin,
        request,
        form,
        submit,
        title="New job",
        explains=with_code(handler.description),
        goes_back_to=goes_back_to,
    )


def with_changes(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
    """Do an ended job's work once more, as a new job: the form opens with the ended job's payload."""
    _ensure_may(request, AGAIN)
    job = _row(model_admin, request, object_id)
    page = reverse("admin:jobs_job_change", args=[job.pk])
    if job.status not in TERMINAL:
        return _refused(request, "It has not ended: what waits or runs is not done again.", page)
    key = {"idempotency_key": f"form-{uuid4()}"}
    opened = Opened(_readable(job.payload), {**kept_of(job), **key})
    return _do_again(
        model_admin,
        request,
        job,
        opened,
        reason=ReasonForm.base_fields["reason"],
        submit=lambda form, spec: _submitted(request, form, spec, again=job),
        page=page,
        explains="A new job of the same kind and project. It has an effect key of its own: what the first one did at"
        " the provider is done once more. The first one stays as it is.",
    )


def requeue_with_changes(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
    """Requeue a dead letter with another payload."""
    _ensure_may(request, REQUEUE)
    letter = _row(model_admin, request, object_id)
    page = reverse("admin:jobs_deadletter_change", args=[letter.pk])
    if letter.resolution is not None:
        return _refused(request, f"It was {letter.resolution} before.", page)

    def submit(form: JobForm, spec: JobSpec) -> HttpResponse:
        moved = requeue_dead_letters(
            [letter.pk],
            actor=actor_of(request),
            payload=spec.payload,
            priority=spec.priority,
            note=form.cleaned_data["reason"],
        ).moved
        if not moved:
            return _refused(request, "Somebody was faster: it is not open any more.", page)
        messages.success(request, "Requeued. It starts as limits allow.")
        return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[moved[letter.pk]]))

    kept = kept_of(letter.job)
    opened = Opened(_readable(letter.payload), kept, fixed={"user_id": kept["user_id"]}, shows=("priority",))
    return _do_again(
        model_admin,
        request,
        letter,
        opened,
        reason=optional_reason("Optional; kept with the dead letter and in the audit trail."),
        submit=submit,
        page=page,
        explains="The dead letter is requeued: a new job with the payload below and the same effect key. The dead"
        " letter keeps the old payload.",
    )


def _verb(view: Callable[..., HttpResponse], permission: str, **fitting: Any) -> Any:
    """A button that opens the form, on pages of rows with these values."""

    def changes(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        return view(model_admin, request, object_id)

    marked = mark(changes, __name__="with_changes", needs=permission, fits=lambda rows: rows.filter(**fitting))
    return action(marked, description="Run again with changes", url_path="with-changes", icon="edit_note")


WITH_CHANGES = _verb(with_changes, AGAIN, status__in=TERMINAL)
REQUEUE_WITH_CHANGES = _verb(requeue_with_changes, REQUEUE, resolution=None)


def _do_again(
    model_admin: Any,
    request: HttpRequest,
    row: Job | DeadLetter,
    opened: Opened,
    *,
    reason: forms.Field,
    submit: Callable[[JobForm, JobSpec], HttpResponse],
    page: str,
    explains: str,
) -> HttpResponse:
    try:
        handler = find_handler(row.kind)
    except UnknownKind as error:
        return _refused(request, error.message, page)
    if opened.payload is not None and len(json.dumps(opened.payload, ensure_ascii=False)) > MAX_EDITABLE:
        return _refused(request, "Its payload is too large to edit here; do it through the API.", page)
    form = JobForm(_sent(request), handler=handler, project_id=row.project_id, opened=opened, reason=reason)
    return _fill_in(
        model_admin,
        request,
        form,
        lambda spec: submit(form, spec),
        title="Run again with changes",
        explains=explains,
        goes_back_to=page,
        is_unreadable=opened.payload is None,
        is_again=True,
    )


def _fill_in(
    model_admin: Any,
    request: HttpRequest,
    form: JobForm,
    submit: Callable[[JobSpec], HttpResponse],
    **shown: Any,
) -> HttpResponse:
    """
    Show the form, then the same form with the job's price and forecast; then submit exactly the job that was shown.

    A job that was changed after its forecast is forecast anew: nobody pays a price that they have not seen.
    """
    if request.method == "POST" and form.is_valid():
        text = form.job_text()
        seen = sha256(text.encode()).hexdigest()
        try:
            spec = parse_spec(text)
            if "submit" in request.POST and request.POST.get("seen") == seen:
                return submit(spec)
            forecast, fault = forecast_of_job(text, project_id=form.project_id)
            if fault:
                form.tell(fault)
            else:
                shown |= {"forecast": forecast, "seen": seen, "is_changed": "submit" in request.POST}
        except QueueOpsError as error:
            form.tell(error)
    return _page(model_admin, request, {"form": form, "kind": form.handler.kind, "project": form.project_id, **shown})


def _submitted(request: HttpRequest, form: JobForm, spec: JobSpec, *, again: Job | None = None) -> HttpResponse:
    job = submit_by_hand(
        spec,
        project_id=form.project_id,
        actor=actor_of(request),
        reason=form.cleaned_data["reason"],
        again=again.pk if again else None,
    )
    level = messages.SUCCESS if job.created else messages.WARNING
    messages.add_message(request, level, OUTCOMES[job.outcome])
    return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[job.id]))


def _page(model_admin: Any, request: HttpRequest, shown: Mapping[str, Any]) -> HttpResponse:
    return show_page(model_admin, request, "admin/jobs/job/new.html", shown)


def _row(model_admin: Any, request: HttpRequest, object_id: str) -> Any:
    rows = row_named(model_admin, request, object_id)
    if rows is None:
        raise Http404
    return rows.get()


def _readable(payload: Any) -> Mapping[str, Any] | None:
    """Return a payload; None: a text stands in its place, because it is encrypted and the person may not read it."""
    return payload if isinstance(payload, dict) else None


def _sent(request: HttpRequest) -> Any:
    return request.POST if request.method == "POST" else None


def _refused(request: HttpRequest, why: str, page: str) -> HttpResponse:
    messages.warning(request, why)
    return HttpResponseRedirect(page)


def _ensure_may(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied
