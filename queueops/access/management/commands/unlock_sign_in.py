from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueops.access.services import guard


class Command(BaseCommand):
    help = "Unlock an account, or an address that is locked for producer keys. Without a name: show who is locked."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="", help="The user name, or the address.")
        parser.add_argument("--all", action="store_true", help="Everybody who is locked.")

    def handle(self, *args: Any, **options: Any) -> None:
        names = [options["name"]] if options["name"] else guard.locked_names()
        if not options["name"] and not options["all"]:
            print("\n".join(names) or "Nobody is locked.")
            return
        forgotten = {name: guard.unlock(name, actor="system:unlock_sign_in") for name in names}
        unlocked = sorted(name for name, count in forgotten.items() if count)
        if options["name"] and not unlocked:
            raise CommandError(f"There are no failed sign-ins of {options['name']}.")
        print(f"Unlocked: {', '.join(unlocked) or 'nobody was locked'}.")
