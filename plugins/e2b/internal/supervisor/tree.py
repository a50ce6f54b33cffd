# Sends signals to the processes of one program in a sandbox.
#
#   signal PID NAME    to all below the supervisor PID
#   interrupt PID      what Ctrl-C does: SIGINT to the group of the program
#   sweep TAG          kills all that have the tag in their environment, for a
#                      supervisor that is gone
#
# The exit code is 0 if there was somebody to send it to, and else 1.
import os
import signal
import sys
import time


def processes():
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                data = f.read()
        except OSError:
            continue
        state, parent, group = data[data.rindex(b")") + 2:].split()[:3]
        if state not in (b"Z", b"X"):
            yield int(name), int(parent), int(group)


def below(root):
    children = {}
    for pid, parent, _ in processes():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        found += (some := children.get(queue.pop(), []))
        queue += some
    return found


def tagged(tag):
    mark = b"SANDBOX_EXECUTION=" + tag.encode()
    for pid, _, _ in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark in f.read().split(b"\0"):
                    yield pid
        except OSError:
            pass


def send(pids, number, how=os.kill):
    reached = False
    for pid in pids:
        try:
            how(pid, number)
            reached = True
        except OSError:
            pass
    return reached


def main(what, whom, name=""):
    if what == "signal":
        return send(below(int(whom)), getattr(signal, name))
    if what == "interrupt":
        groups = {group for pid, parent, group in processes() if parent == int(whom)}
        return send(groups, signal.SIGINT, os.killpg)
    reached, deadline = False, time.monotonic() + 3
    while (some := list(tagged(whom))) and time.monotonic() < deadline:
        reached = send(some, signal.SIGSTOP) | send(some, signal.SIGKILL) | reached
        time.sleep(0.01)
    return reached


sys.exit(0 if main(*sys.argv[1:]) else 1)
