"""`queueops run`: reads a file of rows, asks a model about each, and writes a file of answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from queueops_client.cli.estimate import price_of, show_forecast
from queueops_client.cli.files import BadFile, opened, parsed
from queueops_client.cli.rows import Row, Template, cell_at, no_formula, refuse_unwritable, rows_of, written
from queueops_client.cli.session import ENDED_WITH_FAILURES, Session, command
from queueops_client.cli.watch import follow
from queueops_client.cli.words import duration, plural
from queueops_client.producer import QueueOps
from queueops_client.records import Forecast, Result, SubmittedBatch

INTERRUPTED = 130
MILLION = 1_000_000
PROVIDERS = {"claude": "anthropic", "gemini": "gemini"}  # by the beginning of a model's name; others: openai
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(m|min|h|d)")
SECONDS_OF = {"m": 60, "min": 60, "h": 3_600, "d": 86_400}
ERROR = "error"
ANSWER = "answer"


@dataclass(frozen=True)
class Answer:
    """The answer to a question: the cells for its row, or the error that it ended with."""

    cells: Mapping[str, Any]
    error: str = ""


class Span(click.ParamType[timedelta]):
    name = "6h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        told = SPAN.fullmatch(str(value).strip())
        return (
            timedelta(seconds=float(told[1]) * SECONDS_OF[told[2]])
            if told
            else self.fail(f"{value!r} is no span of time: write 30m, 6h or 2d.", param, ctx)
        )


@click.command()
@click.argument("source", metavar="FILE")
@click.option("--prompt", required=True, help="The question: {column} stands for a row's value; @FILE reads it.")
@click.option("--model", required=True)
@click.option("--credential", required=True, envvar="QUEUEOPS_CREDENTIAL", help="By its name (QUEUEOPS_CREDENTIAL).")
@click.option(
    "--provider", type=click.Choice(["openai", "anthropic", "gemini"]), help="By default as the model's name."
)
@click.option("--service", help="Of the credential, where it is not the provider's name.")
@click.option("--system", default="", help="The instruction for all rows; @FILE reads it from a file.")
@click.option("--schema", metavar="FILE", help="A JSON Schema that answers have to fit: its properties become columns.")
@click.option("--max-output-tokens", type=click.IntRange(min=1), help="Of each answer.")
@click.option("--column", "columns", multiple=True, metavar="PATH", help="Of the result, such as data.total; several.")
@click.option("--out", help="The file to write, .csv, .ndjson or .parquet; by default FILE with .answers in its name.")
@click.option("--by", type=Span(), help="When it is wanted: what has time goes by batch, at half the price.")
@click.option("--name", default="", help="The batch's. Another name asks all rows again.")
@click.option(
    "--ask-above", type=float, default=1.0, show_default=True, help="Ask first if it may cost more than this."
)
@click.option("--max-price", type=float, help="Submit nothing if it may cost more than this.")
@click.option("--dry-run", is_flag=True, help="Submit nothing: say what it would cost, and when it would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def run(session: Session, *, source: str, prompt: str, out: str | None, columns: tuple[str, ...], **asked: Any) -> int:
    """
    Ask a language model about each row of FILE, and write the rows with the answers in the same order.

    FILE is CSV or Parquet, has a JSON object a line, or is a folder of texts, whose rows have the columns file and
    text. Equal questions are asked once. After an interruption, or with rows changed, the same command asks what is new
    alone.
    """
    schema = None if asked["schema"] is None else _schema_in(asked["schema"])
    rows, template = rows_of(source), Template(_text_in(prompt))
    target = out or str(Path(source).with_name(f"{Path(source).stem}.answers{_ending_of(source)}"))
    refuse_unwritable(target)
    chosen = _chosen(columns, schema)
    _refuse_clash(chosen, rows)
    shared = _shared(asked, schema)
    payloads = [{**shared, "prompt": template.fill(row, place)} for place, row in rows]
    keys = [_key(payload, asked["name"]) for payload in payloads]
    questions = dict(zip(keys, payloads, strict=True))  # equal questions are asked once
    by = {} if asked["by"] is None else {"complete_by": (datetime.now(UTC) + asked["by"]).isoformat()}
    jobs = [
        {"kind": "llm.generate", "payload": payload, "idempotency_key": key, **by} for key, payload in questions.items()
    ]
    with session.queue() as queue:
        told = queue.forecast(iter(jobs))
        if asked["dry_run"] or not told.accepted:
            places = [place for place, _ in dict(zip(keys, rows, strict=True)).values()]
            return show_forecast(session, told, places)
        _confirm(session, told, asked)
        batch = queue.submit_many(iter(jobs), name=asked["name"] or f"run {Path(source).name}")
        code, batches = _followed(session, queue, batch)
        if code == INTERRUPTED:
            session.note("The same command goes on with it; nothing is asked twice.")
            return code
        answers = _answers(queue, batches, questions.keys(), chosen)
        counts = _write(target, zip(keys, rows, strict=True), answers, chosen)
        _receipt(session, queue, batches, counts, target=target)
    return ENDED_WITH_FAILURES if counts.total() > counts[""] else 0


def _shared(asked: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    """Return the fields that the payloads of all rows share."""
    begins = next((provider for name, provider in PROVIDERS.items() if asked["model"].startswith(name)), "openai")
    given = {
        "provider": asked["provider"] or begins,
        "credential": asked["credential"],
        "model": asked["model"],
        "service": asked["service"],
        "system": _text_in(asked["system"]) or None,
        "schema": schema,
        "max_output_tokens": asked["max_output_tokens"],
    }
    return {name: value for name, value in given.items() if value is not None}


def _text_in(text: str) -> str:
    """Return the text, or, if it begins with an @, the content of the file that it names."""
    if not text.startswith("@"):
        return text
    with opened(text[1:]) as file:
        return file.read()


def _schema_in(name: str) -> Any:
    with opened(name) as file:
        schema = parsed(file.read(), name)
    if not isinstance(schema, dict):
        raise BadFile(f"{name}: a JSON Schema is an object.")
    return schema


def _ending_of(source: str) -> str:
    ending = Path(source).suffix.lower()
    if Path(source).is_dir():
        return ".csv"
    return ending if ending in {".csv", ".tsv", ".parquet"} else ".ndjson"


def _chosen(paths: Sequence[str], schema: Any) -> dict[str, str]:
    """Return the columns that are added to the rows, and the path of each in a result."""
    if paths:
        return {path.rpartition(".")[2]: path for path in paths}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties:
        return {name: f"data.{name}" for name in properties}
    return {ANSWER: "text" if schema is None else "data"}


def _refuse_clash(chosen: Mapping[str, str], rows: Sequence[tuple[str, Row]]) -> None:
    """
    Raises:
        BadFile: A column of the answers has the name of a column of the rows.
    """
    own = {name for _, row in rows for name in row}
    for name in (*chosen, ERROR):
        if name in own:
            raise BadFile(f"The rows have a column {name!r}, which the answers would fill; rename it there.")


def _key(payload: Mapping[str, Any], name: str) -> str:
    asked = json.dumps([payload, name], sort_keys=True)
    return f"run-{hashlib.sha256(asked.encode()).hexdigest()}"


def _confirm(session: Session, told: Forecast, asked: Mapping[str, Any]) -> None:
    """Show the cost and the duration, and ask for a confirmation if they are large or unknown."""
    known, made = told.jobs["duplicates"], told.jobs["count"]
    if not made:
        session.say(f"All {plural(known, 'question')} were asked before.")
        return
    price, most = price_of(told.live, told.currency), _most(told)
    took = "" if told.live.seconds is None else f", done in {duration(told.live.seconds)}"
    before = f" ({plural(known, 'other')} asked before)" if known else ""
    session.say(f"{plural(made, 'question')}{before}: {price}{took}.")
    limit = asked["max_price"]
    if limit is not None and (most is None or most > limit):
        told_most = "nobody knows what" if most is None else f"up to {most:g} {told.currency}"
        raise click.UsageError(f"It may cost {told_most}, and --max-price is {limit:g}. Nothing was submitted.")
    if most is None or most > asked["ask_above"]:
        session.confirm(f"Ask {plural(made, 'question')}, {price}?", yes=asked["yes"])


def _most(told: Forecast) -> float | None:
    """Return the most that the batch may cost; None: unknown, as when a price is missing."""
    most = told.live.price if told.live.price_range is None else told.live.price_range["at_most"]
    return None if most is None else most / MILLION


def _followed(session: Session, queue: QueueOps, batch: SubmittedBatch) -> tuple[int, list[str]]:
    """Follow all batches with jobs of the questions until they end."""
    batches = [str(batch.id)] * bool(batch.accepted) + [str(one) for one in batch.known_batches]
    for one in batches:
        if (code := follow(session, queue, one)) == INTERRUPTED:
            return code, batches
    return 0, batches


def _answers(
    queue: QueueOps, batches: Sequence[str], keys: Collection[str], chosen: Mapping[str, str]
) -> dict[str, Answer]:
    """Return the answers by the question's key; if a failed job was requeued, the answer of the later job."""
    found: dict[str, Answer] = {}
    key_of: dict[UUID, str] = {}
    for batch in batches:
        for result in queue.results(batch):
            key = result.idempotency_key or _key_of_origin(queue, result, key_of)
            if key in keys:
                key_of[result.id] = key
                found[key] = _answer(queue, result, chosen)
    return found


def _key_of_origin(queue: QueueOps, result: Result, known: Mapping[UUID, str]) -> str:
    """Return the key of the failed job that was requeued as this one."""
    origin, seen = result.origin, 0
    while origin is not None and seen < 20:  # noqa: PLR2004 - no job is requeued so often
        if origin in known:
            return known[origin]
        job = queue.job(origin)
        if job.idempotency_key:
            return job.idempotency_key
        origin, seen = job.origin, seen + 1
    return ""


def _answer(queue: QueueOps, result: Result, chosen: Mapping[str, str]) -> Answer:
    if not result.ok:
        return Answer({}, result.last_error_code or result.state)
    whole = queue.result(result) if result.stored_result is not None else result.result
    return Answer({name: no_formula(cell_at(whole, path)) for name, path in chosen.items()})


def _write(
    target: str, rows: Iterable[tuple[str, tuple[str, Row]]], answers: Mapping[str, Answer], chosen: Mapping[str, str]
) -> Counter[str]:
    """Write the rows with their answers, in order. Return how many ended with each error; an empty one is no error."""
    asked = list(rows)
    names = list(dict.fromkeys(name for _, (_, row) in asked for name in row))
    counts: Counter[str] = Counter()
    with written(target, [*names, *chosen, ERROR]) as write:
        for key, (_, row) in asked:
            answer = answers.get(key, Answer({}, "not_found"))
            counts[answer.error] += 1
            write({**row, **dict.fromkeys(chosen), **answer.cells, ERROR: answer.error})
    return counts


def _receipt(session: Session, queue: QueueOps, batches: Sequence[str], counts: Counter[str], *, target: str) -> None:
    costs = [queue.batch(one) for one in batches]
    known = [one.cost_money for one in costs if one.cost_money is not None]
    currency = next((one.currency for one in costs if one.currency), "")
    cost = f" The batches cost {sum(known) / MILLION:g} {currency} so far." if known and currency else ""
    failed = ", ".join(f"{count:,} {code}" for code, count in counts.most_common() if code)
    total = counts.total()
    told = f"{counts['']:,} of {plural(total, 'row')} answered, in {target}.{cost}"
    data = {"rows": total, "answered": counts[""], "errors": {code: n for code, n in counts.items() if code}}
    session.show({**data, "out": target, "batches": list(batches)}, told)
    if failed:
        session.note(f"Not answered: {failed}.")
