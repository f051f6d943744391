"""What stands for an `npx` that installs before it runs: installer.py FILE JOURNAL, then the counter's arguments

It notes the begin of an installation in JOURNAL and goes on once there is FILE.done, with FILE as what is installed. A process that is
ended before has installed nothing. Where FILE is there it runs the counter at once.
"""

import json
import os
import sys
import time
from pathlib import Path

installed, journal, *arguments = sys.argv[1:]


def note(what):
    with open(journal, "a") as out:
        out.write(json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic()}) + "\n")


if not os.path.exists(installed):
    note("installing")
    while not os.path.exists(f"{installed}.done"):
        time.sleep(0.02)
    Path(installed).touch()
    note("installed")
os.execv(sys.executable, [sys.executable, str(Path(__file__).with_name("counter.py")), journal, *arguments])
