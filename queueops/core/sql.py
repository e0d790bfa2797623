"""Hot and locking SQL lives in files: `<app>/sql/<verb>_<noun>.sql`."""

from functools import cache
from importlib.resources import files


@cache
def load_sql(package: str, name: str) -> str:
    """
    Return the statement of `<package>/sql/<name>.sql` without its header comment.

    The header is for people; leaving it out keeps the text that PostgreSQL parses, logs and
    shows in `pg_stat_activity` to the statement itself.

    Args:
        package: Dotted name of the app, `jobs`.
        name: File name without its suffix, `claim_jobs`.
    """
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    lines = text.splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith("--")):
        lines.pop(0)
    return "\n".join(lines).strip() + "\n"
