"""Points in time as all screens write them: with their zone, and a clock of 24 hours."""

DATETIME_FORMAT = "Y-m-d H:i T"
