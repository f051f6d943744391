"""Counts how often it was started, and shows what it has said before: python examples/counter.py

The count and the messages are in the daemon, which is started if none runs.
"""

from mcp_sessiond import AlreadyExists
from mcp_sessiond.blocking import Sessions

sessions = Sessions("example-counter")
try:
    session = sessions.create("counter", status="ready")
except AlreadyExists:
    session = sessions.open("counter")

count = session.get("count", 0) + 1
session.set("count", count)

said = session.standalone()
for event in said.replay().events:
    print("before:", event.message["text"])
said.append({"text": f"start number {count}"})
print("now: start number", count)
