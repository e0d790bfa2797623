"""The one character that PostgreSQL cannot store."""

import re

NO_NUL = r"^[^\x00]*$"  # for the pattern of a field

# PostgreSQL's jsonb holds any Unicode text but NUL. Pairs of backslashes before the escape are literal ones: the
# escape behind them is a NUL. After an odd number, `u0000` is ordinary text.
NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
