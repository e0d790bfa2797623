from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueops.access.services import second_factor


class Command(BaseCommand):
    help = "Take away somebody's second factor, such as the only administrator's who lost the phone."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="The user name.")
        parser.add_argument("--reason", default="", help="Kept in the audit trail.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['name']}.")
        taken = second_factor.take_away([user.pk], actor="system:reset_second_factor", reason=options["reason"])
        print(f"{taken} second factor taken away." if taken else f"{user} had none.")
