"""Generated pages about the installation as a whole."""

from itertools import groupby

import queueops.site.documents.api_docs
import queueops.site.documents.guarantees
import queueops.site.documents.proofs
import queueops.site.documents.role_docs  # noqa: F401 (they register a page each)
from queueops.core.env.environment import declared_settings
from queueops.core.env.setting import Setting
from queueops.core.generated_docs import generated_page

_HEAD = """\
# Settings

After this page you can look up every environment variable, its default and its rule.

Written by `manage.py write_docs` from `queueops/core/env/`; change it there.

Everything is set by environment variables, read once at the start. A value that breaks its rule, a
`QUEUEOPS_` variable that is no setting, or a combination that cannot work stops the start with one
message that names every problem. A variable that is set but empty counts as unset.

With `QUEUEOPS_DEBUG=off` (production) `QUEUEOPS_SECRET_KEY`, `QUEUEOPS_ALLOWED_HOSTS` and
`QUEUEOPS_TLS=on` are required and `QUEUEOPS_ALLOW_LOOPBACK_TARGETS` is refused.
"""


@generated_page("reference/settings.md")
def settings_page() -> str:
    parts = [_HEAD]
    declared = sorted(declared_settings().values(), key=lambda item: item[0].section == "Development")
    for section, members in groupby(declared, key=lambda item: item[0].section):
        parts.append(f"## {section}\n\n| variable | default | must be | what it does |\n| --- | --- | --- | --- |")
        parts += [_row(setting, default) for setting, default in members]
        parts.append("")
    return "\n".join(parts)


def _row(setting: Setting, default: object) -> str:
    cells = (f"`{setting.variable}`", setting.shown_default or _shown(default), setting.rule, setting.text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ", ".join(f"`{word}`" for word in default) or "none"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
