"""Takes one step of a provider batch: hands it over, polls it, cancels it, or reads its results."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus

from django.conf import settings
from django.db.models import Exists, F, OuterRef
from django.db.models.functions import Coalesce, Least

from jobs.classify import clean
from jobs.handlers.batch_form import Access, Intent, LineResult, Remote, batch_of, find_batch, first_custom_id
from jobs.handlers.errors import ProviderError
from jobs.handlers.http.answers import secrets_in
from jobs.models import Job, PauseSwitch, ProviderBatch, ProviderBatchLine
from jobs.states import RUNNING
from queueops.core.clock import Now, database_now
from queueops.core.errors import QueueOpsError
from queueops.tenancy.credential_pools.server_settings import SettingPlace, note, write_noted
from queueops.tenancy.models import CredentialSetting
from queueops.tenancy.secrets.credentials import open_named

from .adopt import FIRST_LOOK_SECONDS, MAX_STATE_LENGTH, adopt, find_siblings, give_away, known_ids
from .calls import CallLoop
from .collect import Spoken, find_spoken, open_searches, seconds_left
from .compose import compose_lines
from .deadlines import LAST_CALL_SHARE, longest_call
from .settle import (
    LINES_OF_A_SLICE,
    OutcomeNotes,
    Read,
    close_batch,
    hand_back_rest,
    settle_answers,
    settle_failures,
    settle_unanswered,
)
from .split import TOO_LARGE, keep_half, split

logger = logging.getLogger(__name__)

BEGIN_CALL_SECONDS = 10.0  # the longest time from noting a create call in the batch's row to making the call
LOOK_SHARE = 0.1  # the next look comes after this share of the batch's age
MAX_FAULT_LENGTH = 2000
# After so many misses in a row, over so many seconds, a batch or its results count as gone. Fewer misses prove nothing:
# a provider may not show a new batch, or new results, at once.
GONE_AFTER_LOOKS = 5
GONE_AFTER_SECONDS = 180.0
TRIED_SECONDS = 3 * 86_400.0  # how long to retry deleting files left at the provider
# `uploads`, `missing` and `faults` are not counted beyond this. Past their columns' end, no step of the row could be
# noted: it would stay due and keep its credential's other batches from theirs.
MAX_COUNTED = 1_000
# A file that was just uploaded may not be found at once. After so many misses it is uploaded again, and in the end its
# jobs go live.
FILE_MISSES = 3
MAX_FILE_MISSES = 5
QUOTA_FAULTS = 5  # after so many pauses between tries, each twice as long as the last, a quota a minute has come back
NEVER_TAKEN = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 501})
NO_SUCH_CALL = frozenset({404, 405, 501})
NO_BATCHES_HERE = re.compile(
    r"batch[^.]{0,60} not (?:supported|available|implemented)|not support[^.]{0,40} batch", re.IGNORECASE
)

NO_FILE = re.compile(
    r"\bfiles?\b[^.]{0,80}(?:not (?:be )?(?:found|exist|ready|processed|available)|pending)|no such file", re.IGNORECASE
)

State = ProviderBatch.State
LineState = ProviderBatchLine.State
NOT_SHOWN = "results_not_shown"
ENDS = {"completed": State.COMPLETED, "expired": State.EXPIRED, "cancelled": State.CANCELLED, "failed": State.FAILED}
WHY_HANDED_BACK = {
    "completed": "its batch has no answer to it",
    "expired": "its batch expired before it was its turn",
    "cancelled": "its batch was called back",
    "failed": "its batch failed",
}


@dataclass(slots=True)
class Step:
    """One step of one batch."""

    batch: ProviderBatch
    calls: CallLoop
    log: OutcomeNotes | None = None

    def make(self) -> None:
        batch = self.batch
        spoken = find_spoken(batch.kind, batch.provider)
        if spoken is None:
            look_later(batch, settings.QUEUEOPS.batch_poll_seconds)
        elif batch.closed_at is not None:
            self._tidy(spoken)
        elif batch.state == State.CREATING:
            self._hand_over(spoken)
        elif batch.state == State.OPEN:
            self._look(spoken)
        else:
            self._collect(spoken)

    def _access(self, spoken: Spoken) -> Access:
        credential = open_named(self.batch.credential)
        return spoken.api.access(credential, spoken.form.key_of(self.batch.service, credential))

    def _hand_over(self, spoken: Spoken) -> None:
        batch = self.batch
        if not batch.creations and (batch.cancel_requested_at or seconds_left(batch) <= 0):
            self._end("called back before it was handed over", State.CANCELLED)
            return
        try:
            access = self._access(spoken)
        except (ProviderError, QueueOpsError) as error:
            if batch.creations:  # the provider may have the batch: do not give it up
                raise
            self._refuse(clean(str(error)))
            return
        if batch.creations and self._is_found(spoken, access):
            return
        if open_searches().filter(kind=batch.kind, service=batch.service, credential=batch.credential).exists():
            # After a restore, the provider may have a batch that holds these jobs and has no row here. Until the
            # search for such batches is closed, no batch is made of these jobs.
            asked = self._may_exist(spoken)
            reason = "its batch was not made before the restored moment"
            hand_back_rest(batch, reason=reason, unanswered=asked, billed=asked)
            ProviderBatch.objects.filter(pk=batch.pk).update(ended_at=Now())
            close_batch(batch, State.CANCELLED)
            return
        if PauseSwitch.objects.filter(scope=PauseSwitch.Scope.GLOBAL).exists():
            look_later(batch, settings.QUEUEOPS.batch_poll_seconds)
            return
        # Lines of unwanted jobs are dropped as lines are composed: they could not be booked any more.
        is_wanted = not self._may_exist(spoken) or _is_wanted(batch)
        lines = compose_lines(batch, spoken, log=self.log) if is_wanted else []
        if lines:
            self._make_of(lines, spoken, access)
        else:
            self._end("nobody wants its jobs any more", State.CANCELLED, may_be_billed=not is_wanted)

    def _may_exist(self, spoken: Spoken) -> bool:
        """
        Whether an unanswered call may have made a batch that the list cannot show.

        A list without our ids proves nothing: another row may hold the batch by its count of lines.
        """
        return self.batch.creations > 0 and not spoken.api.names_batches

    def _is_found(self, spoken: Spoken, access: Access) -> bool:
        """
        Whether the step ends here, after a create call without answer: its batch was found, may exist, or is unwanted.
        """
        batch, api = self.batch, spoken.api
        # Wait until the provider must list the batch that the last call may have made, even if an operator asks for an
        # earlier look.
        begun_by = batch.create_before.timestamp()
        wait = begun_by + longest_call(batch) + api.appears_seconds - database_now()
        if wait > 0:
            look_later(batch, wait)
            return True
        # Late lines are UNANSWERED by now: without them the count would match no batch.
        sent = batch.all_lines.filter(state__in=ProviderBatchLine.UNREAD).count()
        intent = Intent(batch.pk, batch.model, sent, batch.created_at)
        found = self.calls.run(
            find_batch(api, self.calls.send, access, intent, known=known_ids(batch), now=database_now())
        )
        if found is not None:
            by_count = not api.names_batches and found.ending is None
            if by_count and (siblings := find_siblings(batch, sent)):
                raise ProviderError(
                    None,
                    f"{found.id} may be it, or {', '.join(str(one.pk) for one in siblings[:3])}; its results will tell",
                    code="unclear_batch",
                    outcome="unknown",
                )
            if by_count and found.id in known_ids(batch):  # another row adopted it meanwhile
                raise ProviderError(None, f"{found.id} is of another batch", code="unclear_batch", outcome="unknown")
            if not adopt(batch, found, by_count=by_count) and api.names_batches:
                self._cancel_second(found, spoken, access)
        elif seconds_left(batch) <= 0 or batch.cancel_requested_at:
            reason = "called back; the provider does not know of it"
            self._end(reason, State.CANCELLED, may_be_billed=self._may_exist(spoken))
        else:
            return False
        return True

    def _make_of(self, lines: list[bytes], spoken: Spoken, access: Access) -> None:
        batch = self.batch
        intent = Intent(batch.pk, batch.model, len(lines), batch.created_at, lines)
        digest = sha256(b"\n".join(lines)).hexdigest()
        if batch.files and batch.lines_digest != digest:
            self._drop_files(spoken, access)
        if not batch.files:
            # Count the upload before it begins: otherwise a file whose upload is not answered is never deleted.
            noted = ProviderBatch.objects.filter(pk=batch.pk)
            noted.update(uploads=Least(F("uploads") + 1, MAX_COUNTED), is_kept=True)
            try:
                batch.files = dict(self.calls.run(spoken.api.prepare(self.calls.send, access, intent)))
            except ProviderError as error:
                if not _is_never_taken(error):
                    raise
                self._take_refusal(error, spoken, has_no_call=error.status in NO_SUCH_CALL)
                return
            ProviderBatch.objects.filter(pk=batch.pk).update(files=batch.files, lines_digest=digest)
        self._create(spoken, access, intent)

    def _drop_files(self, spoken: Spoken, access: Access) -> None:
        """Delete files whose lines are out of date: otherwise a job that has left the batch would be paid for twice."""
        batch = self.batch
        try:
            self.calls.run(spoken.api.forget(self.calls.send, access, "", batch.files))
        except ProviderError as error:
            logger.warning("provider batch %s: files of old lines stay at the provider: %s", batch.pk, error)
        batch.files = {}

    def _create(self, spoken: Spoken, access: Access, intent: Intent) -> None:
        """Note the call in the row, then make it. Only the process that noted it first makes the call."""
        batch, api = self.batch, spoken.api
        looked_for = BEGIN_CALL_SECONDS + longest_call(batch) + api.appears_seconds
        begun = time.monotonic()
        noted = ProviderBatch.objects.filter(pk=batch.pk, state=State.CREATING, creations=batch.creations).update(
            creations=F("creations") + 1,
            create_before=Now() + timedelta(seconds=BEGIN_CALL_SECONDS),
            look_at=Now() + timedelta(seconds=looked_for),
            enqueued_tokens=batch.enqueued_tokens * intent.count // max(1, batch.lines),
        )
        if not noted or time.monotonic() - begun > BEGIN_CALL_SECONDS:
            return
        try:
            remote = self.calls.run(api.create(self.calls.send, access, intent, batch.files))
        except ProviderError as error:
            self._take_creation_error(error, spoken, access)
            return
        if not remote.id:
            nameless = ProviderError(None, "its answer names no batch", code="malformed_answer", outcome="unknown")
            self._take_creation_error(nameless, spoken, access)
        elif not adopt(batch, remote):
            self._cancel_second(remote, spoken, access)

    def _take_creation_error(self, error: ProviderError, spoken: Spoken, access: Access) -> None:
        batch = self.batch
        row = ProviderBatch.objects.filter(pk=batch.pk)
        has_no_call = self._has_no_call(error, spoken, access)
        is_file_away = not has_no_call and _may_lack_file(error, batch)
        if error.outcome == "not_sent" or error.status == HTTPStatus.TOO_MANY_REQUESTS or is_file_away:
            # This call certainly made no batch. If it stayed counted, the next step would look for its batch.
            row.update(creations=F("creations") - 1)
            if is_file_away:
                # Without files, the next step uploads them again.
                row.update(
                    missing=Least(F("missing") + 1, MAX_COUNTED),
                    **({"files": {}} if batch.missing >= FILE_MISSES else {}),
                )
            if self._is_halved(error):
                return
            raise error
        if _is_never_taken(error):
            self._take_refusal(error, spoken, has_no_call=has_no_call, calls=1)
            return
        # The call may have made a batch. The next step looks for that batch once the provider must have listed it.
        logger.warning("provider batch %s: %s; it will be looked for", batch.pk, error)
        row.filter(state=State.CREATING).update(
            error=clean(str(error)),
            faults=Least(F("faults") + 1, MAX_COUNTED),
            create_before=Now() - timedelta(seconds=longest_call(batch)),
            look_at=Now() + timedelta(seconds=spoken.api.appears_seconds),
        )

    def _has_no_call(self, error: ProviderError, spoken: Spoken, access: Access) -> bool:
        """Whether the server has no batches. If a file was uploaded, a 404 may mean the file: then the list tells."""
        if error.status != HTTPStatus.NOT_FOUND or not self.batch.files:
            return error.status in NO_SUCH_CALL

        async def read_list() -> None:
            async for _ in spoken.api.listed(self.calls.send, access, since=self.batch.created_at):
                return

        try:
            self.calls.run(read_list())
        except ProviderError as told:
            return told.status in NO_SUCH_CALL
        return False

    def _is_halved(self, error: ProviderError) -> bool:
        """Halve a batch that is refused by a quota for longer than a minute: alone it may be more than may wait."""
        batch = self.batch
        is_quota = error.status == HTTPStatus.TOO_MANY_REQUESTS and not batch.creations
        is_lasting = is_quota and batch.faults >= QUOTA_FAULTS
        return is_lasting and keep_half(batch, clean(str(error)), creations=batch.creations)

    def _cancel_second(self, remote: Remote, spoken: Spoken, access: Access) -> None:
        """Cancel a provider's batch that the row does not name: otherwise it would be paid for and never read."""
        batch = self.batch
        kept = ProviderBatch.objects.filter(pk=batch.pk).values_list("provider_id", flat=True).first()
        if kept == remote.id:
            return
        logger.warning("provider batch %s: %s was made beside %s; it is cancelled", batch.pk, remote.id, kept or "none")
        try:
            self._cancel(remote.id, spoken, access)
        except ProviderError as error:
            logger.error("provider batch %s: %s runs on and will be paid for: %s", batch.pk, remote.id, error)  # noqa: TRY400 - the provider's error says all

    def _cancel(self, remote_id: str, spoken: Spoken, access: Access) -> None:
        try:
            self.calls.run(spoken.api.cancel(self.calls.send, access, remote_id))
        except ProviderError as error:
            # The provider answers with one of these if the batch has just ended.
            if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.BAD_REQUEST}:
                raise

    def _look(self, spoken: Spoken) -> None:
        batch, api = self.batch, spoken.api
        access = self._access(spoken)
        try:
            remote = self.calls.run(api.look(self.calls.send, access, batch.provider_id))
        except ProviderError as error:
            if error.status == HTTPStatus.NOT_FOUND and self._is_gone() and not self._is_listed(spoken, access):
                self._end("the provider does not know of it any more", State.FAILED, may_be_billed=True)
                return
            raise
        if batch.found_by_count and remote.ending is not None and self._is_given_away(spoken, access, remote):
            return
        has_moved = remote.done != batch.done or remote.state[:MAX_STATE_LENGTH] != batch.provider_state
        ProviderBatch.objects.filter(pk=batch.pk).update(
            provider_state=remote.state[:MAX_STATE_LENGTH],
            done=remote.done,
            files={**batch.files, **remote.files},
            looked_at=Now(),
            faults=0,
            missing=0,
            missing_since=None,
            error=clean(remote.error)[:MAX_FAULT_LENGTH],
            **({"progressed_at": Now()} if has_moved else {}),
        )
        if remote.ending is None:
            self._call_back(spoken, access)
            look_later(batch, self._pause())
        elif _has_failed_whole(remote):
            self._take_failure(remote)
        else:
            ProviderBatch.objects.filter(pk=batch.pk, state=State.OPEN).update(
                state=State.COLLECTING, ended_at=Now(), look_at=Now(), progressed_at=Now()
            )
            batch.refresh_from_db()
            self._collect(spoken, access, remote)

    def _is_gone(self) -> bool:
        """
        Note a look that did not find the batch or its results; return whether to believe that they are gone.

        A look that finds the batch resets the count. A look that fails for another reason does not count.
        """
        rows = ProviderBatch.objects.filter(pk=self.batch.pk)
        rows.update(missing=Least(F("missing") + 1, MAX_COUNTED), missing_since=Coalesce("missing_since", Now()))
        self.batch.refresh_from_db(fields=["missing", "missing_since"])
        since = self.batch.missing_since
        over = database_now() - since.timestamp() if since else 0.0
        return self.batch.missing >= GONE_AFTER_LOOKS and over >= GONE_AFTER_SECONDS

    def _is_listed(self, spoken: Spoken, access: Access) -> bool:
        """Whether the provider's list has the batch; the list proves more than a 404 for the batch itself."""

        async def find() -> bool:
            listed = spoken.api.listed(self.calls.send, access, since=self.batch.created_at)
            return any([one.id == self.batch.provider_id async for one in listed])

        try:
            return self.calls.run(find())
        except ProviderError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False

    def _is_given_away(self, spoken: Spoken, access: Access, remote: Remote) -> bool:
        named = self.calls.run(first_custom_id(spoken.api, self.calls.send, access, remote))
        if not named or batch_of(named) == self.batch.pk:
            return False
        give_away(self.batch, remote, batch_of(named))
        return True

    def _pause(self) -> float:
        """The seconds until the next look: longer for an older batch, but short enough to call it back in time."""
        batch = self.batch
        age = (batch.submitted_at or batch.created_at).timestamp()
        left = seconds_left(batch)
        pause = min(settings.QUEUEOPS.batch_poll_seconds, max(FIRST_LOOK_SECONDS, (time.time() - age) * LOOK_SHARE))
        return max(FIRST_LOOK_SECONDS, min(pause, left)) if left > 0 else min(pause, 5 * FIRST_LOOK_SECONDS)

    def _call_back(self, spoken: Spoken, access: Access) -> None:
        """Cancel the batch at the provider if somebody asked for it, it would be late, or nobody wants its jobs."""
        batch = self.batch
        if batch.cancelled_at is not None:
            return
        reason = batch.cancel_reason if batch.cancel_requested_at else ""
        if not reason and seconds_left(batch) <= 0:
            reason = "it would be late: what it has not done goes live"
        if not reason and not _is_wanted(batch):
            reason = "nobody wants its jobs any more"
        if not reason:
            return
        if batch.found_by_count:
            told = f"It is not cancelled ({reason}): by its count of lines alone it may be another's"
            ProviderBatch.objects.filter(pk=batch.pk).update(error=told)
            return
        self._cancel(batch.provider_id, spoken, access)
        ProviderBatch.objects.filter(pk=batch.pk).update(cancelled_at=Now(), cancel_reason=reason[:200])

    def _collect(self, spoken: Spoken, access: Access | None = None, remote: Remote | None = None) -> None:
        try:
            self._read_results(spoken, access, remote)
        except ProviderError as error:
            # A 404 may mean that the results were read and deleted before a restore: the outcome log has them then.
            if error.status != HTTPStatus.NOT_FOUND or not self._is_gone():
                raise
            self._end("its results are not at the provider any more", State.FAILED, may_be_billed=True)

    def _read_results(self, spoken: Spoken, access: Access | None, remote: Remote | None) -> None:
        batch = self.batch
        access = access or self._access(spoken)
        remote = remote or self.calls.run(spoken.api.look(self.calls.send, access, batch.provider_id))
        secrets = secrets_in(access.headers)
        whole, part, read = remote, list[LineResult](), Read()
        shown = access

        async def fetch(put: Callable[[LineResult | None], None]) -> None:
            await spoken.api.fetch(self.calls.send, shown, whole, put)

        def settle(answers: Sequence[LineResult]) -> None:
            settle_answers(batch, answers, read=read, spoken=spoken, secrets=secrets, log=self.log)

        try:
            for answer in self.calls.stream(fetch):
                if answer is None:
                    read.malformed += 1
                    continue
                part.append(answer)
                if len(part) >= LINES_OF_A_SLICE:
                    settle(part)
                    part = []
        except ProviderError:
            # Otherwise these jobs, too, would be done and paid again if the rest never came.
            settle(part)
            settle_failures(batch, read, log=self.log)
            raise
        settle(part)
        settle_failures(batch, read, log=self.log)
        unread = self._close_rest(remote, read)
        unknown = max(read.unknown, batch.unknown_lines)
        ProviderBatch.objects.filter(pk=batch.pk).update(
            unknown_lines=unknown,
            malformed_lines=read.malformed,
            done=remote.done,
            provider_state=remote.state[:MAX_STATE_LENGTH],
        )
        close_batch(batch, ENDS[remote.ending or "completed"])
        # Keep results with unknown lines for the batch that owns them, or the installation that has the missing jobs.
        # Keep results with unread lines, too: an operator may ask the provider for lines that it says it carried out.
        is_over = not unknown and not unread
        ProviderBatch.objects.filter(pk=batch.pk).update(is_kept=is_over)
        if is_over:
            self._forget(spoken, access, remote)

    def _close_rest(self, remote: Remote, read: Read) -> bool:
        """
        Hand back the lines that have no answer. Return whether some of them may be billed all the same.

        Lines that the provider says it did not carry out are free. The counts tell whether it did any other line.

        Raises:
            ProviderError: The provider counts more done lines than it shows; the missing results may still come.
        """
        batch, ending = self.batch, remote.ending or "completed"
        open_lines = batch.all_lines.filter(state__in=ProviderBatchLine.UNREAD)
        has_rest = bool(set(open_lines.values_list("number", flat=True)) - read.unsent)
        tells_counts = bool(remote.done or remote.lines)
        unread = has_rest and (remote.done > len(read.answered) or not tells_counts)
        # A result that cannot be read is not shown: a proxy may have put a page of its own in the results' place.
        shown = len(read.answered | read.unsent) + read.unknown
        if unread and remote.done > shown and not self._is_gone():
            told = f"the provider has done {remote.done} lines and shows {shown} so far"
            raise ProviderError(None, told, code=NOT_SHOWN, outcome="answered")
        why = f" ({batch.cancel_reason})" if ending == "cancelled" and batch.cancel_reason else ""
        reason = WHY_HANDED_BACK[ending] + why
        settle_unanswered(batch, billed=False, only=read.unsent if unread else None)
        # A provider that completes its batches without carrying lines out would have these go round until the deadline.
        hand_back_rest(batch, reason=reason, only=read.unsent, unanswered=ending == "completed")
        hand_back_rest(batch, reason=reason, unanswered=unread or ending == "completed", billed=unread)
        return unread

    def _take_failure(self, remote: Remote) -> None:
        """Halve a batch that failed because of its size; otherwise give back its jobs."""
        batch, told = self.batch, clean(remote.error) or "the provider refused it"
        is_halved = False
        if _is_too_large(told, remote):
            is_halved = split(batch, told, creations=batch.creations)
        elif remote.is_full:
            is_halved = keep_half(batch, told, creations=batch.creations)
        if not is_halved:
            self._refuse(told, remote)

    def _take_refusal(self, error: ProviderError, spoken: Spoken, *, has_no_call: bool, calls: int = 0) -> None:
        """
        Split a batch that is too large; otherwise give back its jobs.

        Args:
            calls: How often this step has asked the provider to make the batch.
        """
        told, billed = clean(str(error)), self._may_exist(spoken)
        is_too_large = error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _is_too_large(told)
        if billed or not (is_too_large and split(self.batch, told, creations=self.batch.creations + calls)):
            self._refuse(told, has_no_call=has_no_call, billed=billed)

    def _refuse(
        self, error: str, remote: Remote | None = None, *, has_no_call: bool = False, billed: bool = False
    ) -> None:
        """
        Give back the jobs of a batch that the provider will not carry out as it is.

        Args:
            has_no_call: The server has no call for batches: later jobs go live, as if it said so of the model.
            billed: An earlier call may have made the batch: the possible costs of its lines are booked as unknown.
        """
        batch = self.batch
        if has_no_call or NO_BATCHES_HERE.search(error):
            place = SettingPlace(batch.credential, open_named(batch.credential).base_url, batch.model)
            note(place, CredentialSetting.Takes.NO_BATCHES, error)
            write_noted()
        is_full = remote is not None and remote.is_full
        # Lines that the refusal names go live, and fail there by their own fault. The others wait for a batch without
        # them.
        named = _numbers_of(batch, remote) if remote else frozenset[int]()
        live = named if named or is_full else None
        hand_back_rest(
            batch,
            reason=f"its batch was refused: {error}"[:MAX_FAULT_LENGTH],
            live=live,
            unanswered=billed,
            billed=billed,
        )
        ProviderBatch.objects.filter(pk=batch.pk).update(error=error, found_no_room=is_full, ended_at=Now())
        close_batch(batch, State.FAILED)

    def _tidy(self, spoken: Spoken) -> None:
        """Delete the files that a closed batch still has at the provider; after TRIED_SECONDS, give up."""
        if database_now() - (self.batch.closed_at or self.batch.created_at).timestamp() < TRIED_SECONDS:
            self._forget(spoken, self._access(spoken))
        else:
            ProviderBatch.objects.filter(pk=self.batch.pk).update(is_kept=False)

    def _end(self, reason: str, state: ProviderBatch.State, *, may_be_billed: bool = False) -> None:
        """
        End a batch that has no results.

        Args:
            may_be_billed: The provider may have carried out its lines: the most that they can have cost stays booked as
                unknown, late lines included. Otherwise they certainly cost nothing.
        """
        batch = self.batch
        if may_be_billed:
            hand_back_rest(batch, reason=reason, unanswered=True, billed=True)
        else:
            hand_back_rest(batch, reason=reason, live=None)
            settle_unanswered(batch, billed=False)
        ProviderBatch.objects.filter(pk=batch.pk).update(error=reason, ended_at=Now())
        close_batch(batch, state)

    def _forget(self, spoken: Spoken, access: Access, remote: Remote | None = None) -> None:
        batch = self.batch
        files = {**batch.files, **(remote.files if remote else {})}
        batch.refresh_from_db(fields=["uploads"])
        lost = batch.pk if batch.uploads > ("input" in files) else None
        try:
            self.calls.run(spoken.api.forget(self.calls.send, access, batch.provider_id, files, lost=lost))
        except ProviderError as error:
            message = f"its files were not deleted: {error}"
            raise ProviderError(error.status, message, code=error.code, outcome=error.outcome) from error
        ProviderBatch.objects.filter(pk=batch.pk).update(files={}, is_kept=False)


def look_later(batch: ProviderBatch, seconds: float) -> None:
    """Look at the batch again after so many seconds, or sooner: at the moment when its late lines go live."""
    to_last_call = seconds_left(batch) + (1 - LAST_CALL_SHARE) * settings.QUEUEOPS.batch_margin_seconds
    pause = max(FIRST_LOOK_SECONDS, min(seconds, to_last_call)) if to_last_call > 0 else seconds
    ProviderBatch.objects.filter(pk=batch.pk).update(look_at=Now() + timedelta(seconds=pause))


def _has_failed_whole(remote: Remote) -> bool:
    """Whether a batch failed before any of its lines, so that no result says how it went."""
    tells_lines = remote.files.get("output") or (remote.files.get("errors") and not remote.error)
    return remote.ending == "failed" and not tells_lines and remote.done <= remote.failed


def _is_never_taken(error: ProviderError) -> bool:
    return error.status in NEVER_TAKEN or error.outcome == "refused"


def _may_lack_file(error: ProviderError, batch: ProviderBatch) -> bool:
    """Whether a creation was refused because the file that was uploaded for it is not there, or not yet."""
    if not batch.files or batch.missing >= MAX_FILE_MISSES:
        return False
    is_refusal = error.status == HTTPStatus.BAD_REQUEST and NO_FILE.search(str(error)) is not None
    return is_refusal or error.status == HTTPStatus.NOT_FOUND


def _is_too_large(told: str, remote: Remote | None = None) -> bool:
    return (remote is not None and remote.is_too_large) or TOO_LARGE.search(told) is not None


def _is_wanted(batch: ProviderBatch) -> bool:
    owned = Job.objects.filter(pk=OuterRef("job_id"), fencing_token=OuterRef("token"), status__in=RUNNING)
    return batch.all_lines.filter(Exists(owned), state=LineState.WAITING).exists()


def _numbers_of(batch: ProviderBatch, remote: Remote) -> frozenset[int]:
    """Return the numbers of the lines that a refusal names by their position among the sent lines."""
    if not remote.bad_lines:
        return frozenset()
    sent = batch.all_lines.filter(state=LineState.WAITING).order_by("number")
    return frozenset(
        number for place, number in enumerate(sent.values_list("number", flat=True)) if place in remote.bad_lines
    )
