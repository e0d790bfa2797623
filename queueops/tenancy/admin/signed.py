"""Forms of rows with a signing secret."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from queueops.core.errors import QueueOpsError
from queueops.tenancy.secrets.signing import new_signing_secret


class SignedForm(forms.ModelForm):  # type: ignore[type-arg]
    """Gives what is added its secret, whose text is on the instance as `shown_secret` until it has been shown."""

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if self.instance._state.adding and self.is_signed(given):  # noqa: SLF001 - the id is made before it is stored
            try:
                self.instance.shown_secret, self.instance.secret = new_signing_secret()
            except QueueOpsError as error:
                raise ValidationError(error.message, code=error.code) from None
        return given

    def is_signed(self, given: dict[str, Any]) -> bool:
        return True
