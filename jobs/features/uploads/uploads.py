"""
Files of jobs that a person uploads: checked as a whole first, submitted only when that person says so.

The checks are those of a batch through the API. Their findings are kept with the file. Everything is checked again at
the submission, as handlers, credentials and the queue's room may have changed.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import repeat
from typing import Any
from uuid import UUID

import pydantic_core
from django.db import transaction

from jobs.models import Upload
from jobs.services.submit.documents.accept_document import Line, LineChecker, LineError
from jobs.services.submit.documents.csv_jobs import FIRST_ROW, UnreadableFile, jobs_of_csv
from jobs.services.submit.documents.preview import good_jobs
from jobs.services.submit.prepare import PreparedJob
from jobs.services.submit.spec import WrittenJob
from jobs.services.submit.submit import EmptyBatch, refuse_when_full, submit_batch
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.sealing import open_bytes, seal_bytes
from queueops.core.values.lines import lines_of as lines_of_text
from queueops.core.values.written import elements, member
from queueops.tenancy.secrets.encryption import is_encrypted


class UnknownUpload(QueueOpsError):
    """There is no such upload."""

    code = "unknown_upload"
    status = 404
    detail_fields = ("upload_id",)


MAX_UPLOAD_BYTES = 20_000_000  # a file is in memory while it is checked; larger files go through the API, which streams
KEPT = timedelta(days=1)
MAX_LINES_SAMPLED = 5
BEGIN = 1_000  # bytes at the beginning that show the file's form
_BEGINS_A_DOCUMENT = re.compile(rb"\{\s*(?:\"jobs\"|\"(?:name|tags|partial)\"|\Z)")

Format = Upload.Format


class UploadTooLarge(QueueOpsError):
    """The file is too large."""

    code = "upload_too_large"
    status = 413
    detail_fields = ("given_bytes", "limit_bytes")


@dataclass(frozen=True, slots=True)
class CheckedLines:
    """
    Attributes:
        seen: Jobs, good and bad.
        duplicates: Good jobs whose idempotency key a job with the same work already has.
        errors: The first accept_document.MAX_LISTED_ERRORS of `error_count`.
        sample: The first good jobs, as they would be submitted.
    """

    seen: int
    duplicates: int
    error_count: int
    errors: list[LineError] = field(default_factory=list)
    sample: list[dict[str, Any]] = field(default_factory=list)


def store_upload(
    content: bytes, *, project_id: str, actor: str, file_name: str, name: str = "", default_kind: str = ""
) -> Upload:
    """
    Check every line of a file and keep it with what was found; nothing is submitted.

    Args:
        file_name: A file is CSV if this ends in `.csv` or `.tsv`; else it has one JSON object a line, or an array.
        name: The batch's name.
        default_kind: The kind of the lines that name none.

    Raises:
        UploadTooLarge, UnreadableFile, TooManyJobs, QueueFull, EmptyBatch: Nothing was kept.
    """
    if len(content) > MAX_UPLOAD_BYTES:
        raise UploadTooLarge(
            f"The file has {len(content):,} bytes; at most {MAX_UPLOAD_BYTES:,} are taken here. Larger ones go through"
            " the API.",
            given_bytes=len(content),
            limit_bytes=MAX_UPLOAD_BYTES,
        )
    form = Format.CSV if file_name.lower().endswith((".csv", ".tsv")) else Format.NDJSON
    checked = check_lines(
        read_lines(content, form=form, default_kind=default_kind),
        project_id=project_id,
        first_line=first_line_of(form),
    )
    with transaction.atomic():
        upload = Upload.objects.create(
            project_id=project_id,
            name=name,
            file_name=file_name[:200],
            format=form,
            default_kind=default_kind,
            content=_kept(content, project_id),
            size_bytes=len(content),
            lines=checked.seen,
            error_count=checked.error_count,
            errors=[error.as_dict() for error in checked.errors],
            sample=checked.sample,
            uploaded_by=actor,
        )
        trail.record(
            actor=actor,
            action="upload_jobs",
            target=f"upload {upload.pk}",
            after={"file": upload.file_name, "lines": checked.seen, "errors": checked.error_count},
            moved=0,
            project_id=project_id,
        )
    return upload


def submit_upload(upload_id: UUID, *, actor: str, partial: bool = False) -> Upload:
    """
    Make a batch of an upload's jobs, once: a second call makes nothing more.

    Args:
        partial: Leave out lines that are not valid; otherwise one such line rejects all.

    Raises:
        UnknownUpload, BatchRejected, QueueFull: Nothing was submitted.
    """
    with transaction.atomic():
        upload = Upload.objects.select_for_update().filter(pk=upload_id).first()
        if upload is None:
            raise UnknownUpload(f"There is no upload {upload_id}.", upload_id=str(upload_id))
        if upload.batch_id is not None:
            return upload
        lines, first_line = lines_of(upload)
        submitted = submit_batch(
            lines,
            project_id=upload.project_id,
            actor=actor,
            name=upload.name or upload.file_name,
            partial=partial,
            first_line=first_line,
        )
        upload.batch_id, upload.content = submitted.id, None
        upload.save(update_fields=["batch_id", "content"])
        trail.record(
            actor=actor,
            action="submit_upload",
            target=f"upload {upload.pk}",
            after={
                "batch": submitted.id,
                "duplicates": submitted.duplicates,
                "left_out": submitted.error_count,
                "file": upload.file_name,
            },
            moved=submitted.accepted,
            project_id=upload.project_id,
        )
    return upload


def lines_of(upload: Upload) -> tuple[Iterator[Line], int]:
    """
    Return the jobs of an upload that was not submitted yet, and the number of the first line.

    Raises:
        UnreadableFile, SealedAway
    """
    form = Format(upload.format)
    content = zlib.decompress(open_bytes(bytes(upload.content or b"")))
    return read_lines(content, form=form, default_kind=upload.default_kind), first_line_of(form)


def _kept(content: bytes, project_id: str) -> bytes:
    compressed = zlib.compress(content)
    return seal_bytes(compressed) if is_encrypted(project_id) else compressed


def forget_uploads() -> int:
    """Delete uploads older than KEPT, submitted or not; for house-keeping. Returns how many."""
    deleted, _ = Upload.objects.filter(created_at__lt=Now() - KEPT).delete()
    return deleted


def check_lines(lines: Iterable[Line], *, project_id: str, first_line: int = 1) -> CheckedLines:
    """
    Check a batch's lines as its submission would, without storing anything.

    Raises:
        TooManyJobs, QueueFull, EmptyBatch, UnreadableFile
    """
    checker = LineChecker(project_id, first_line=first_line)
    good = duplicates = 0
    sample: list[dict[str, Any]] = []
    for some in good_jobs(checker, lines, project_id):
        good += len(some)
        duplicates += sum(one.is_duplicate for one in some)
        sample += [_shown(one.line, one.job) for one in some[: MAX_LINES_SAMPLED - len(sample)]]
    if not checker.seen:
        raise EmptyBatch("The file holds no jobs.")
    refuse_when_full(project_id, good - duplicates)
    return CheckedLines(checker.seen, duplicates, checker.error_count, checker.errors, sample)


def read_lines(content: bytes, *, form: Upload.Format, default_kind: str, jobs_alone: bool = True) -> Iterator[Line]:
    """
    Return the jobs of a file, as `submit_batch` takes them.

    Args:
        jobs_alone: Refuse a document that says more than its jobs; otherwise the rest is not read.

    Raises:
        UnreadableFile
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # from Windows PowerShell, or “Unicode Text”
        content = _decoded(content, "utf-16").encode(errors="replace")
    if form == Format.CSV:
        return jobs_of_csv(_decoded(content, "utf-8-sig"), default_kind=default_kind)
    content = content.removeprefix(codecs.BOM_UTF8)
    if (jobs := _jobs_of_document(content, jobs_alone=jobs_alone)) is not None:
        return _with_kind(jobs, default_kind)
    return _with_kind(lines_of_text(content), default_kind)


def _decoded(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"The file is not {encoding.upper().removesuffix('-SIG')} (byte {error.start:,}). Export it as “CSV UTF-8” "
            "from the spreadsheet."
        ) from None


def _jobs_of_document(content: bytes, *, jobs_alone: bool) -> Iterable[Line] | None:
    """
    Return the jobs of a file that is one array of jobs, or one document as the API takes it; None: its lines are jobs.

    Raises:
        UnreadableFile: It is an array that cannot be read, or a document that says more than its jobs.
    """
    begin = content[:BEGIN].lstrip()
    is_array = begin.startswith(b"[")
    if not is_array and not _BEGINS_A_DOCUMENT.match(begin):
        return None
    try:
        parsed = pydantic_core.from_json(content, allow_inf_nan=True)
    except ValueError as error:
        if is_array:
            raise UnreadableFile(f"The file begins as an array of jobs, and is not JSON: {error}.") from None
        return None
    jobs = parsed.get("jobs") if isinstance(parsed, dict) else parsed
    if not isinstance(jobs, list):
        return None
    if jobs_alone and isinstance(parsed, dict):
        _refuse_options(parsed)
    text = content.decode(errors="replace")
    texts = elements(text if is_array else member(text, "jobs") or "") or repeat("")
    return (
        WrittenJob(job, written) if isinstance(job, dict) else pydantic_core.to_json(job)
        for job, written in zip(jobs, texts, strict=False)
    )


def _refuse_options(document: Mapping[str, Any]) -> None:
    """
    Raises:
        UnreadableFile: The document says of its batch what an upload does not do, such as whom the batch waits for.
    """
    # Otherwise the batch would start at once, without its guard and its callback, and nobody would know.
    if others := [name for name in document if name != "jobs"]:
        raise UnreadableFile(
            f"An upload takes of a document its jobs alone, and would ignore: {', '.join(others)}. Submit it by the API"
            " (POST /api/v1/batches/), or leave them out."
        )


def first_line_of(form: Upload.Format) -> int:
    return FIRST_ROW if form == Format.CSV else 1


def _with_kind(lines: Iterable[Line], default_kind: str) -> Iterator[Line]:
    for line in lines:
        parsed: Any = line
        if default_kind and isinstance(line, bytes) and line.strip():
            try:
                parsed = pydantic_core.from_json(line, allow_inf_nan=True)
            except ValueError:
                parsed = None  # the checks report what is wrong with the line
        if default_kind and isinstance(parsed, dict) and "kind" not in parsed:
            written = line.text if isinstance(line, WrittenJob) else line
            yield WrittenJob({"kind": default_kind, **parsed}, written if isinstance(written, bytes | str) else b"")
        else:
            yield line


def _shown(line: int, job: PreparedJob) -> dict[str, Any]:
    return {
        "line": line,
        "kind": job.handler.kind,
        "service": job.service,
        "priority": job.spec.priority.value,
        "payload": pydantic_core.from_json(job.payload) if len(job.payload) <= 10_000 else {},  # noqa: PLR2004 - a page's
    }
