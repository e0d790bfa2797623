from typing import Any

from django.core.management.base import CommandError, CommandParser

from jobs.features.pools.pools import LISTS, delete_pool, save_pool, unheard_of
from queueops.core.processes.operator_command import OperatorCommand

ACTOR = "system:set_pool"


class Command(OperatorCommand):
    help = "Add a pool that clusters can be started for, change what it serves, or delete it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="Small letters, digits, - and _: llm, slow-reads.")
        for words in LISTS:
            parser.add_argument(f"--{words}", default="", help="Separated by commas; * at the end of one: all such.")
        parser.add_argument("--place", type=int, default=100, help="The lowest of the pools that name a job has it.")
        parser.add_argument("--delete", action="store_true", help="Delete it. Its jobs go to the next that names them.")

    def handle(self, *args: Any, name: str, place: int, delete: bool, **options: Any) -> None:
        lists = {words: [word.strip() for word in options[words].split(",") if word.strip()] for words in LISTS}
        if delete:
            if any(lists.values()):
                raise CommandError("--delete takes no lists.")
            delete_pool(name, actor=ACTOR)
            self.stdout.write(f"Deleted the pool {name}.")
            return
        save_pool(name, place=place, actor=ACTOR, **lists)
        for service in unheard_of(lists["services"]):
            self.stderr.write(f"Nothing here calls a service {service} yet: no handler, limit or job has that name.")
        self.stdout.write(f"Saved the pool {name}. Start a cluster for it: manage.py qcluster --pool {name}")
