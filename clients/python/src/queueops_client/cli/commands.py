"""The command's parts, and the codes it ends with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import click
from click.shell_completion import get_completion_class

from queueops_client.cli import allowance, ask, audit, letters, mcp, schedules, submit, usage, watch, windows, work
from queueops_client.cli.session import Session, command, shared
from queueops_client.cli.words import clean
from queueops_client.errors import ApiError, BadConfiguration, ClientError, Unreachable, WaitTimeout
from queueops_client.transport import Transport

REFUSED, MISUSED, UNREACHABLE, NOT_IN_TIME, INTERRUPTED = 1, 2, 4, 5, 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
    \b
    Ends with
      0  done
      1  the server refused, or the input cannot be used
      2  wrong options or configuration
      3  done, but the watched batch or job has failures
      4  the server cannot be reached
      5  not ended within --timeout
    130  interrupted; the work goes on
    """,
)
@click.version_option(package_name="queueops-client")
@shared(environment=False)
@click.pass_context
def queueops(context: click.Context, /, **given: Any) -> None:
    """
    Submit work to QueueOps, watch it, and see to what failed.

    Set QUEUEOPS_URL and QUEUEOPS_KEY, or give --url and --key-file.
    """
    context.obj = given


@queueops.command()
@click.option("--server", is_flag=True, help="And the installation's.")
@command
def version(session: Session, *, server: bool) -> None:
    """The version of this command."""
    found = {"client": metadata.version("queueops-client")}
    if server:
        with Transport(session.address(), "", retry=session.retry()) as transport:
            found["server"] = transport.request("GET", "/healthz").body.get("version", "before 1.0")
    session.show(found, "\n".join(f"{name} {number}" for name, number in found.items()))


@queueops.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """
    Print what completes this command in a shell.

    \b
    bash:  eval "$(queueops completion bash)"      in ~/.bashrc
    zsh:   eval "$(queueops completion zsh)"       in ~/.zshrc
    fish:  queueops completion fish > ~/.config/fish/completions/queueops.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(kind(queueops, {}, "queueops", "_QUEUEOPS_COMPLETE").source())


for part in (
    submit.submit,
    ask.run,
    watch.watch,
    work.status,
    work.results,
    work.cancel,
    work.go_on,
    letters.letters,
    schedules.schedules,
    windows.windows,
    allowance.allowance,
    audit.audit,
    mcp.mcp,
    usage.usage,
    usage.flush,
):
    queueops.add_command(part)


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; return the code to end with."""
    as_json = "--json" in arguments
    try:
        _refuse_bytes(arguments)
        code = queueops.main(list(arguments), prog_name="queueops", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except ClientError as error:
        tell(error, as_json=as_json)
        return code_of(error)
    return code if isinstance(code, int) else 0


def _refuse_bytes(arguments: Sequence[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"Argument {number} is not UTF-8.") from None


def tell(error: ClientError, *, as_json: bool) -> None:
    if as_json:
        api = error if isinstance(error, ApiError) else None
        shown = {
            "code": error.code,
            "message": api.message if api else str(error),
            "fields": api.fields if api else {},
            "details": api.details if api else {},
        }
        click.echo(json.dumps({"error": shown}, ensure_ascii=False), err=True)
        return
    click.echo(f"queueops: {clean(str(error))}", err=True)
    if isinstance(error, Unreachable) and error.may_have_arrived and error.idempotency_key:
        click.echo(
            f"It may have arrived. The same again with --idempotency-key {error.idempotency_key} does it once.",
            err=True,
        )


def code_of(error: ClientError) -> int:
    for kind, code in ((BadConfiguration, MISUSED), (Unreachable, UNREACHABLE), (WaitTimeout, NOT_IN_TIME)):
        if isinstance(error, kind):
            return code
    return REFUSED
