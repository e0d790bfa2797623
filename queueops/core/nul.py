"""The one character that PostgreSQL cannot store."""

import re

NO_NUL = r"^[^\x00]*$"  # for the pattern of a field

# PostgreSQL's jsonb holds any Unicode text but NUL. An even number of backslashes before it is literal text.
NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
