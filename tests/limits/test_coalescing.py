"""Many small writes to one spreadsheet, a few of which the provider refuses: few units, and only those few fail."""

from __future__ import annotations

import pytest

from jobs.models import DeadLetter, Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from sandbox.google_sheets.a1 import column_name
from tests.faults.clusters import cluster
from tests.sandbox.providers import SheetsClient
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import SUBMITTER, Account, Quota, cell_write, open_accounts, set_limits, set_quota

pytestmark = pytest.mark.usefixtures("transactional_db")

ACCOUNT = Account("p0", "u0")
POISON = ["A1", "B7", "B400"]
ROWS = 1000


@pytest.mark.parametrize(
    ("jobs", "most_units"),
    [pytest.param(2_000, 20, id="short"), pytest.param(10_000, 30, id="long", marks=pytest.mark.soak)],
)
def test_writes_to_one_spreadsheet_leave_as_few_calls_and_poison_cells_fail_alone(
    ledger, sandbox, figures, *, jobs, most_units
):
    cells = [f"{column_name(number // ROWS)}{number % ROWS + 1}" for number in range(jobs)]
    quota = Quota("sliding", 60)
    set_quota(sandbox, quota)
    set_limits(quota)
    sandbox.turn(google_sheets={"protected_ranges": POISON})
    open_accounts([ACCOUNT], url=sandbox.url)
    lines = (cell_write(ACCOUNT, spreadsheet="book", cell=cell, value=index) for index, cell in enumerate(cells))
    submit_batch(lines, project_id=ACCOUNT.project, actor=SUBMITTER)
    with cluster(ledger):
        wait_for(all_finished, seconds=120, what="the end of every write")
    calls = sandbox.calls(provider="google_sheets")
    figures(f"{jobs:,} writes in {len(calls)} calls, {len(POISON)} poison cells")
    assert len(calls) <= most_units
    assert not [call for call in calls if not call["accepted"]]
    written = written_cells(sandbox)
    assert written == {cell: index for index, cell in enumerate(cells) if cell not in POISON}
    letters = DeadLetter.objects.values_list("payload__range", "http_status")
    assert sorted(letters) == sorted((cell, 400) for cell in POISON)
    assert Job.objects.filter(status=JobState.COMPLETED).count() == jobs - len(POISON)
    assert not Job.objects.filter(retry_count__gt=0).exists(), "who waits for a poison cell to be cut out, pays nothing"


def all_finished() -> bool:
    return not Job.objects.filter(finished_at=None).exists()


def written_cells(sandbox: Sandbox) -> dict[str, int]:
    client = SheetsClient(sandbox.url, "book", token="project:p0/user:reader")
    found: dict[str, int] = {}
    for row, line in enumerate(client.get("A1:Z1000").json()["values"]):
        found |= {f"{column_name(column)}{row + 1}": int(value) for column, value in enumerate(line) if value != ""}
    return found
