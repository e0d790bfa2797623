from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobs.door.models import ModelRoute, Protocol
from jobs.door.routes import delete_route, routes_of, save_route
from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import Project

ACTOR = "system:model_routes"


class Command(BaseCommand):
    help = "Show, set or remove the routes by which clients of OpenAI and Anthropic reach models."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        shown = actions.add_parser("list", help="Show a project's routes in the order in which they are tried.")
        put = actions.add_parser("set", help="Make a route, or change the one of this model.")
        gone = actions.add_parser("remove", help="Remove the route of a model.")
        for one in (shown, put, gone):
            one.add_argument("project")
        for one in (put, gone):
            one.add_argument("model", help="Its name; with * at its end every name that begins so.")
            one.add_argument("--provider", choices=Protocol.values, default=Protocol.OPENAI.value)
        put.add_argument("--credential", required=True, help="A credential, or a pool, that the project may use.")
        put.add_argument("--service", default="", help="By which limits it goes; else those of the provider's name.")
        put.add_argument("--place", type=int, default=0, help="The route with the lowest place that fits is taken.")

    def handle(self, *args: Any, action: str, project: str, **options: Any) -> None:
        if not Project.objects.filter(pk=project).exists():
            raise CommandError(f"There is no project {project!r}.")
        if action != "list":
            self._change(action, project, options)
        routes = routes_of(project)
        for route in routes:
            self.stdout.write(
                f"{route.place:>3}  {route.pattern}  {route.provider}  {route.credential}  {route.service_name}"
            )
        if not routes:
            self.stdout.write(f"The project {project} has no routes.")

    def _change(self, action: str, project: str, options: dict[str, Any]) -> None:
        named = {"project_id": project, "provider": options["provider"], "pattern": options["model"]}
        found = ModelRoute.objects.filter(**named).first()
        try:
            if action == "set":
                figures = {name: options[name] for name in ("provider", "credential", "service", "place")}
                figures["pattern"] = options["model"]
                save_route(found.pk if found else None, figures, project_id=project, actor=ACTOR)
            elif found is None:
                raise CommandError(f"The project {project} has no route for {options['model']!r}.")
            else:
                delete_route(found.pk, project_id=project, actor=ACTOR)
        except QueueOpsError as error:
            said = "; ".join(f"{name}: {one}" for name, some in error.fields.items() for one in some)
            raise CommandError(f"{error.message} {said}".strip()) from error
