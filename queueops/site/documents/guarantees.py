"""The guarantees, and the tests that prove them. Tests are found in their source, without importing them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from queueops.core.generated_docs import generated_page

MARKER = "proves"

GUARANTEES: Mapping[str, str] = {
    "R1": "Executors that are killed at random lose no job, and repeat only what the killed ones ran.",
    "R2": "What an executor writes after its lease is over changes nothing, and is logged.",
    "R3": "A database that restarts loses no acknowledged submit and ends no process.",
    "R4": "A standby that is promoted has every acknowledged submit, and work goes on in seconds by itself.",
    "R5": "A bad network to the database (slow, silent, cut, narrow) hangs nothing and has no job claimed twice.",
    "R6": "A job that brings down its process is buried after three crashes and harms no other.",
    "R7": "Clocks of executors that are wrong start nothing early and take no living executor for dead.",
    "R8": "Every history of a job follows the model, and its log alone gives its row.",
    "R9": "However claim, rescue and completion interleave, a job has one owner.",
    "R10": "A process that dies at any point of a job leaves exactly the documented outcome.",
    "R11": "Usage is counted once whatever is repeated, shuffled or killed, and never reserved above the allowance.",
    "R12": "One idempotency key has one effect, and its answer is repeated.",
    "R13": "A client that was told that its usage is recorded loses none of it and counts none of it twice.",
    "R14": "Overload is refused with a time to come back, takes no memory, and leaves others their turns.",
    "R15": "Sockets that do not read cost neither the others nor the process anything.",
    "R16": "A socket misses no event, whatever happens to the listener or the database.",
    "R17": "A migration fails no request that comes meanwhile.",
    "R18": "From a base backup and the archived log the state of a moment is restored.",
    "R19": "Under steady load with pruning neither tables, indexes, connections nor memory grow.",
    "R20": "A restored database calls nobody before a person resumes it.",
    "R21": "After an upgrade there is a way back: a version works beside what a later one has left in its database.",
    "S1": "Nobody sees or changes anything of another project, even where a view forgets to filter.",
    "S2": "Guesses at keys are slowed down, revoked keys refused, and a dump of the database opens nothing.",
    "S3": "Unknown fields are refused, not ignored.",
    "S4": "A body beyond the limit is cut off before it costs memory.",
    "S5": "Every action of the admin is open to those with its permission alone.",
    "S6": "No payload leads a call into the internal network.",
    "S7": "Pages run no script that is not ours.",
    "S8": "Other sites get neither session nor socket, and a socket ends within ten seconds of what opened it.",
    "S9": "Passwords and codes cannot be guessed, and a second factor cannot be passed by.",
    "S10": "Only registered handlers and listed functions are run.",
    "S11": "Secrets are in no log, page or metric.",
    "S12": "A stored text is never markup.",
    "S13": "A cell of an exported file is never a formula.",
    "S14": "What is installed is locked by version and hash; an audit that reached no source never says clean.",
    "S15": "The audit trail and the log can be added to and not changed.",
    "S16": "The API answers as its document says, and never with an error of its own.",
    "P1": "Whatever process of a cluster is killed, none of its others stays behind.",
    "P2": "After an outage requests whose clients left are not carried out, and a storm of retries ends with it.",
    "P3": "A socket sees that the database was restored to an earlier moment, and starts anew.",
    "P4": "A backup is read back, and a restore that would lack a row or a constraint is refused.",
    "P5": "After a restore everything is paused, what had run is not run again, and work resumes with a ramp.",
    "P6": "Behind a pooler that shares sessions nothing starts that would not work, and the rest works.",
    "P7": "A host with another secret key does not start.",
    "P8": "A standby, a full disk and a restart are told apart, answered with 503, and pass by themselves.",
    "P9": "Hosts of one name with equal process numbers, and copies of a database, leave each other alone.",
    "P10": "Several may migrate at once, a host's death is no job's crash, and several database hosts may be named.",
    "P11": "The web process ends requests under way before it stops.",
    "P12": "Workers leave alone what only another release can carry out.",
    "P13": "Each ended job that fits a webhook's filter is noted once for it, and told under one message id.",
}

HEADINGS = {"R": "Nothing is lost or done twice", "S": "Nobody gets at what is not theirs", "P": "In production"}

_HEAD = """\
# Guarantees, and their proofs

After this page you can look up what is promised and open the tests that prove it.

Each heading is a guarantee, and the tests below it prove it. A test without a remark runs in `make test`, or in
`make test-all` where it starts processes. One marked *soak* runs in `make soak`; one marked *short and soak* in both.

Tests of `tests/crash_points` stop whoever works on jobs, on batches of a provider or on webhooks before and after each
statement that it sends. One real kill of each mechanism stays as the witness.

Written by `manage.py write_docs` from `queueops/site/documents/guarantees.py` and the tests, which name what they
prove: `@pytest.mark.proves("R1")`.
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """A test. `path` starts at the repository's root; `form` is `short`, `soak` or `short and soak`."""

    path: str
    name: str
    form: str


@generated_page("reference/guarantees.md")
def guarantees_page() -> str:
    proofs = find_proofs(Path(settings.BASE_DIR))
    lines = [_HEAD]
    for group, heading in HEADINGS.items():
        lines += [f"## {heading}", ""]
        for row, text in GUARANTEES.items():
            if row.startswith(group):
                lines += [f"### {row}: {text.removesuffix('.')}", "", *map(_shown, proofs[row]), ""]
    return "\n".join(lines)


def find_proofs(root: Path) -> dict[str, list[Proof]]:
    """Return the tests by guarantee, in the order of their paths."""
    found: dict[str, list[Proof]] = defaultdict(list)
    for file in sorted((root / "tests").rglob("test_*.py")):
        for row, name, form in _proofs_of(ast.parse(file.read_text(encoding="utf-8"))):
            found[row].append(Proof(file.relative_to(root).as_posix(), name, form))
    return found


def _shown(proof: Proof) -> str:
    soak = "" if proof.form == "short" else f" ({proof.form})"
    return f"- [{proof.name.removeprefix('test_').replace('_', ' ')}](../../{proof.path}){soak}"


def _proofs_of(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    assigned = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    of_all = [assigned["pytestmark"]] if "pytestmark" in assigned else []
    for test in module.body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
            for row in dict.fromkeys(row for marks in (*of_all, *test.decorator_list) for row in _rows(marks)):
                yield row, test.name, _form([*of_all, *test.decorator_list], assigned)


def _rows(marks: ast.expr) -> Iterator[str]:
    for call in ast.walk(marks):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == MARKER:
            yield from (ast.literal_eval(argument) for argument in call.args)


def _form(marks: list[ast.expr], assigned: Mapping[str, ast.expr]) -> str:
    form = "short"
    for mark in marks:
        text = ast.unparse(mark)
        named = {node.id for node in ast.walk(mark) if isinstance(node, ast.Name)}
        text += "".join(ast.unparse(assigned[name]) for name in named & assigned.keys())
        if "mark.soak" in text:
            form = "short and soak" if "parametrize" in text else "soak"
    return form
