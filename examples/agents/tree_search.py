#!/usr/bin/env python3
"""A tree search over copies of a live session, with nothing but Python's own library.

A column of a table was computed from another one in some steps, and the agent looks for them. It
tries each step that it knows in a copy of the session, by POST /instances/{id}/fork: a copy goes
on with the variables of the interpreter, so that no step is taken twice. It goes on with copies of
the most promising copies.

usage: tree_search.py, with BROKER_URL and BROKER_TOKEN. The broker runs as root, for its
sandboxes are to have snapshots.
"""

import json
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 8  # requests; a tenant without quotas of its own may have 10
KEPT = 3  # so many of the copies are gone on from
DEPTH = 6  # steps at most: 4 copies for the first, and 3 x 4 for each other one

STEPS = {
    "double": "2 * y",
    "add one": "y + 1",
    "subtract x": "y - x",
    "square": "y ** 2",
}

SESSION = """
from statistics import correlation, StatisticsError

xs = [float(x) for x in range(-5, 6)]
target = [4 * (x + 1) ** 2 - 2 * x + 1 for x in xs]
ys = xs

def distance():
    if ys == target:
        return 0.0
    try:
        return 1.001 - abs(correlation(ys, target))
    except (StatisticsError, OverflowError):
        return 2.0
"""


def call(method, path, body=None):
    request = urllib.request.Request(
        os.environ["BROKER_URL"] + "/api/v1" + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["BROKER_TOKEN"], "Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as refused:
        raise SystemExit(f"{method} {path}: {refused.read().decode()}") from None


def run(instance, code):
    done = call("POST", f"/instances/{instance}/execute", {"language": "python", "context": "default", "code": code})
    if done["status"] != "succeeded":
        raise SystemExit(done["stderr"] or done["detail"])
    return done["stdout"]


def search(there, threads):
    """there is the set of the instances that there are; returns the steps, or None, and the number of copies."""

    def forget(instance):
        call("DELETE", f"/instances/{instance}")
        there.discard(instance)

    def fork(node):
        _, taken, instance = node
        made = [one["id"] for one in call("POST", f"/instances/{instance}/fork", {"count": len(STEPS)})["instances"]]
        there.update(made)
        forget(instance)
        return [([*taken, name], copy) for name, copy in zip(STEPS, made)]

    def attempt(tried):
        taken, instance = tried
        code = f"ys = [{STEPS[taken[-1]]} for x, y in zip(xs, ys)]\nprint(distance())"
        return float(run(instance, code)), taken, instance

    origin = call("POST", "/instances", {"language": "python"})["id"]
    there.add(origin)
    run(origin, SESSION)
    level, copies = [(0.0, [], origin)], 0
    for _ in range(DEPTH):
        tried = [one for forks in threads.map(fork, level) for one in forks]
        copies += len(tried)
        level = sorted(threads.map(attempt, tried))
        if level[0][0] == 0:
            return level[0][1], copies
        list(threads.map(forget, [instance for _, _, instance in level[KEPT:]]))
        level = level[:KEPT]
    return None, copies


def main():
    there = set()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            steps, copies = search(there, threads)
        finally:
            for instance in there:
                call("DELETE", f"/instances/{instance}")
    if steps is None:
        raise SystemExit(f"not found in {copies} copies")
    print(f"{', '.join(steps)}: found in {copies} copies")


main()
