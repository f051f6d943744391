"""A server that claims sessions of these numbers, a label each: python3 claimant.py FROM UNTIL

It says what the later half of its claims took, as a median in µs. For each line that it is told it claims the first one once more,
and says the outcome. Its leases end with its input.
"""

import pathlib, statistics, sys, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import sessiond

first, end = map(int, sys.argv[1:])
claim = lambda number: sessiond.call("claim", {"label": f"session {number}"})["outcome"]
took = []
for number in range(first, end):
    began = time.perf_counter()
    claim(number)
    took.append((time.perf_counter() - began) * 1e6)
print(statistics.median(took[len(took) // 2 :]), flush=True)
for _ in sys.stdin:
    print(claim(first), flush=True)
