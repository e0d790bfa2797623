from pydantic import BaseModel

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler


class Greeting(BaseModel):
    name: str


@handler(kind="sample.greet", service="sample", payload=Greeting, idempotent=True)
async def greet(job: RunningJob[Greeting]) -> Done:
    """Greet somebody."""
    job.progress(50, "thinking")
    if job.payload.name == "nobody":
        raise ProviderError(404, "there is nobody", code="nobody", outcome="answered")
    return Done({"greeting": f"Hello {job.payload.name}"})


@handler(kind="sample.greet_slowly", service="sample", payload=Greeting)
def greet_slowly(job: RunningJob[Greeting]) -> None:
    """Greet somebody, in a thread."""
    job.progress(100, job.payload.name)
