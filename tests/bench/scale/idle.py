"""Whether a process has nothing to do."""

import pathlib, time


def wakings(pid):
    """How often its threads have slept and were woken, by thread: threads come and go."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    count = lambda task: int((task / "status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return {task.name: count(task) for task in tasks}


def settled(pid):
    """Returns when no thread of it was woken for a second, or after ten: the kernel tells nobody of that unasked."""
    before, since, until = wakings(pid), time.monotonic(), time.monotonic() + 10
    while time.monotonic() < min(since + 1, until):
        time.sleep(0.1)
        if (now := wakings(pid)) != before:
            before, since = now, time.monotonic()
