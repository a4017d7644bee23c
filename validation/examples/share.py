"""A stranger's predictor: a spinner's slice is the fair slice of the kernel that is asked about.

Reads a question of `validation.score` and prints a number, or nothing where it cannot say.
"""

import json
import re
import sys

question = json.load(sys.stdin)
if question["metric"] != "mean_slice_us" or question["kind"] == "repeat":
    sys.exit()
b = question["b"]
tunables = dict(re.findall(r"tun (\w+) (\d+)", b["setup"]))
version = tuple(int(n) for n in re.findall(r"\d+", b["kernel"])[:2])
spinners = 16
preempted_by_wakers = "NO_WAKEUP_PREEMPTION" not in b["setup"] and "wpol=batch" not in b["workload"]
if preempted_by_wakers:
    print(question["recorded"])  # Wakers cut the slices, and how often they wake is in the recording.
elif version >= (6, 6):
    tick_us = 4000
    base_us = int(tunables.get("base_slice_ns", 700_000)) / 1e3
    print(tick_us * -(-base_us // tick_us))
else:
    least_us = int(tunables.get("min_granularity_ns", 750_000)) / 1e3
    period_us = max(int(tunables.get("latency_ns", 6_000_000)) / 1e3, least_us * spinners)
    print(4000 * -(-(period_us / spinners) // 4000))
