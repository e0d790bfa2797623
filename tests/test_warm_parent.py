"""A program that is forked is as one that is started."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import ROOT, WarmParent, python, wait_for

STATE = """
import json, os, sys, threading, warnings
fds = sorted(int(name) for name in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [0, 1, 2]
found = {
    "argv": sys.argv,
    "environ": dict(os.environ),
    "first": sys.path[0],
    "name": __name__,
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
    "reactor": "twisted.internet.reactor" in sys.modules,
    "threads": threading.active_count(),
    "session": os.getsid(0) == os.getpid(),
    "directory": os.getcwd(),
    "input": sys.stdin.read(),
    "files": fds[:3] + [fd for fd in fds[3:] if os.path.exists(f"/proc/self/fd/{fd}")],
    "handlers": [str(__import__("signal").getsignal(number)) for number in (1, 2, 13, 15, 17)],
}
__import__("django.conf").conf.settings.configured and found.update(settings=True)
print("some error", file=sys.stderr)
print(json.dumps(found))
"""
OURS = {"queueops", "jobs", "ratelimits", "dashboards", "demo", "sandbox", "manage"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "program.py"


def state(program: Path, *, cold: bool) -> dict[str, Any]:
    with python(str(program), "one", "two", environ={"HOME": "/nowhere"}, cold=cold) as process:
        assert process.process.wait(60) == 0, process.output
        error, told = process.output.splitlines()
    assert error == "some error"
    return dict(json.loads(told))


def test_it_has_what_one_has_that_was_started_and_none_of_our_code_has_run(program):
    program.write_text(STATE)
    cold, warm = state(program, cold=True), state(program, cold=False)
    modules = set(warm.pop("modules"))
    assert {"django", "rest_framework", "aiohttp"} <= modules - set(cold.pop("modules"))
    assert not modules & OURS
    assert not modules & {"django_q", "opentelemetry"}, "what reads the environment at its import"
    assert cold.pop("first") == str(program.parent)
    assert warm.pop("first") == str(ROOT)
    assert warm == cold
    assert warm["threads"] == 1


ENDS = {
    "": 0,
    "import sys; sys.exit(3)": 3,
    "import sys; sys.exit('told')": 1,
    "raise ValueError('told')": 1,
    "import os; os._exit(5)": 5,
    "import os; os.kill(os.getpid(), 9)": -9,
    "import atexit, os; atexit.register(os._exit, 6)": 6,
    "import threading, time, os; threading.Thread(target=lambda: (time.sleep(0.1), os._exit(7))).start()": 7,
}


def test_it_ends_as_one_that_was_started(program):
    for text, ended in ENDS.items():
        program.write_text(text)
        with python(str(program)) as process:
            assert process.process.wait(60) == ended, text
            assert ("told" in process.output) == ("told" in text)
            assert not process.runs


def test_it_is_signalled_by_its_number_which_is_nobody_elses_before_its_end_is_known(program):
    program.write_text("import time; print('runs'); time.sleep(600)")
    with python(str(program)) as process:
        process.wait_for_output("runs")
        assert process.runs
        os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, what="the end")
        assert process.process.returncode is None
        assert not process.runs
        assert process.process.returncode == -signal.SIGTERM
        process.process.kill()  # without harm


def test_two_draw_different_numbers(program):
    program.write_text("import random, uuid; print(random.random())")
    with python(str(program)) as one, python(str(program)) as other:
        assert one.process.wait(60) == other.process.wait(60) == 0
        assert one.output != other.output


def test_where_the_interpreter_reads_another_environment_it_is_started(program):
    program.write_text("import sys; print('django' in sys.modules)")
    for name in ("PYTHONHASHSEED", "LD_PRELOAD", "TZ"):
        with python(str(program), environ={name: ""}) as process:
            assert process.process.wait(60) == 0
            assert process.output == "False\n", name


def test_all_end_with_the_parent_that_ends_with_its_input(tmp_path, program):
    program.write_text("import os, time; os.fork(); print('runs'); time.sleep(600)")
    log = tmp_path / "log"
    log.touch()
    parent = WarmParent()
    forked = parent.start([str(program)], parent.environ, log)
    wait_for(lambda: log.read_text() == "runs\nruns\n")
    below = [psutil.Process(forked.pid), *psutil.Process(forked.pid).children()]
    assert len(below) == 2
    parent._process.communicate()
    assert psutil.wait_procs(below, timeout=60)[1] == []
    assert parent._process.returncode == 0
