"""The one character that PostgreSQL cannot store."""

import re
from typing import Annotated

from pydantic import StringConstraints

NO_NUL = r"^[^\x00]*$"  # for the pattern of a field
StorableText = Annotated[str, StringConstraints(pattern=NO_NUL)]

# PostgreSQL's jsonb holds any Unicode text but NUL. An even number of backslashes before it is literal text.
NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
