"""Times that clocks and time zones give: cron lines and weekly spans. Pure."""
