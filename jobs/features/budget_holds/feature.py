"""Budget holds: a call goes once its project can pay for it."""

from jobs.feature import Feature

BUDGET_HOLDS = Feature(
    package="jobs.features.budget_holds",
    page="how-to/budgets.md",
    duties=("waits.tend_budget_waits",),
    due=("EXISTS (SELECT FROM jobs_budgetwait)",),
    stays={"jobs_budgetwait": "what jobs wait for of budgets: they ask again there"},
    of_user=("of_user.rows_of_user",),
)
