"""What is asked of the kernel about processes, and how they are ended."""

import os, pathlib, signal, time


def pids():
    """All processes."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def stat_of(pid):
    """State, parent and so on; none where there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def lives(pid):
    """Whether it has not exited."""
    return bool(stat := stat_of(pid)) and stat[0] not in "ZX"


def child_of(pid):
    """The only child of this process."""
    return next(found for found in pids() if (stat := stat_of(found)) and int(stat[1]) == pid)


def end(pid, how=signal.SIGTERM):
    """Ends a process, which may be nobody's child of ours, and waits until it is gone."""
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return
    until = time.monotonic() + 10
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.0005)


def arguments_of(pid):
    """Its command line; empty where there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def marked(mark):
    """The processes that have this text in their environment, and their children, who need not have it."""
    found, parents = set(), {}
    for pid in pids():
        try:
            if (stat := stat_of(pid)) and stat[0] not in "ZX":
                parents[pid] = int(stat[1])
                if mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                    found.add(pid)
        except OSError:
            continue
    return sorted(found | {pid for pid, parent in parents.items() if parent in found})


def held(pid):
    """MiB resident, and the proportional share, in which pages of other processes as well count in part."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        # A keeper can't be looked into but by root.
        text = pathlib.Path(f"/proc/{pid}/status").read_text().replace("VmRSS:", "Rss:")
    of = lambda name: int(text.split(f"\n{name}:")[1].split()[0]) / 1024 if f"\n{name}:" in text else None
    return of("Rss"), of("Pss")


def processor_time(pid):
    """The seconds that its threads have run, those that have exited as well."""
    # The kernel's name of that clock (CPUCLOCK_SCHED, as by clock_getcpuclockid(3)): it is finer than the ticks in /proc.
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    except OSError:
        return 0
