# Sends signals to the processes of one program in a sandbox. This file stands behind
# core.py of package supervise.
#
#   signal PID NAME    to all below the supervisor PID
#   interrupt PID      what Ctrl-C does: SIGINT to the group of the program
#   sweep TAG          kills all that have the tag in their environment, for a
#                      supervisor that is gone
#
# The exit code is 0 if there was somebody to send it to, and else 1.


def tagged(tag):
    mark = b"SANDBOX_EXECUTION=" + tag.encode()
    for pid, _, _, dead in processes():
        try:
            with open("/proc/%d/environ" % pid, "rb") as f:
                if not dead and pid != os.getpid() and mark in f.read().split(b"\0"):
                    yield pid
        except OSError:
            pass


def main(what, whom, name=""):
    if what == "signal":
        return send(descendants(int(whom)), getattr(signal, name))
    if what == "interrupt":
        groups = {group for _, parent, group, dead in processes() if parent == int(whom) and not dead}
        return send(groups, signal.SIGINT, os.killpg)
    reached, deadline = False, time.monotonic() + PATIENCE
    while (some := list(tagged(whom))) and time.monotonic() < deadline:
        reached = send(some, signal.SIGSTOP) | send(some, signal.SIGKILL) | reached
        time.sleep(0.01)
    return reached


sys.exit(0 if main(*sys.argv[1:]) else 1)
