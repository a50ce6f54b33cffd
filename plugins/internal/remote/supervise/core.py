# What every supervisor of a program in a sandbox does: it starts the program, holds on to
# its whole tree of processes, has the time limit, ends what is left and reports. How it is
# asked and how it tells differ; what stands behind this in a script does that. It needs
# Python 3.8 and nothing besides.
import fcntl
import os
import signal
import stat
import sys
import termios
import time

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PATIENCE = 3  # seconds for processes that were killed to be gone


def read(path, default=""):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except (OSError, ValueError):
        return default


def kills_for_memory(counters):
    """How many processes the kernel has killed so far for memory, by the first of these
    files that counts them."""
    for path in counters:
        for line in read(path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def processes():
    """The processes that run: PID, parent and process group."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        text = read("/proc/%s/stat" % name)
        if text:
            state, parent, group = text.rpartition(")")[2].split()[:3]
            yield int(name), int(parent), int(group), state in ("Z", "X")


def descendants(root):
    """The processes below one that still run. None can get out from below a reaper."""
    children = {}
    for pid, parent, _, dead in processes():
        children.setdefault(parent, []).append((pid, dead))
    found, queue = [], [root]
    while queue:
        for pid, dead in children.get(queue.pop(), []):
            queue.append(pid)
            if not dead:
                found.append(pid)
    return found


def send(pids, number, how=os.kill):
    """Send a signal; whether anybody got it."""
    reached = False
    for pid in pids:
        try:
            how(pid, number)
            reached = True
        except OSError:
            pass
    return reached


def become_reaper():
    """Make orphans our children, and keep other processes of the user from looking in."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except Exception:
        pass  # then only what stays below the program is found


def reap(child):
    """Collect what has ended; the status of the child if it has."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == child:
            ended = status


def kill_all(child):
    """Kill all that is left; how many would not go, and the status of the child."""
    ended, deadline = None, time.monotonic() + PATIENCE
    while True:
        status = reap(child)
        ended = status if ended is None else ended
        left = descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return len(left), ended
        send(left, signal.SIGSTOP)  # nobody forks meanwhile
        send(left, signal.SIGKILL)
        time.sleep(0.002)


def spawn(argv, environment, directory, given, leads):
    """Start a program with descriptors by their numbers, as the leader of a session with
    a terminal, of a group, or of nothing. Its PID, and why it does not run: the field at
    fault and a reason."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        what = "argv"
        try:
            for number, fd in given.items():
                os.dup2(fd, number)
            if leads == "session":
                os.setsid()
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            elif leads == "group":
                os.setpgid(0, 0)
            # Python ignores some signals, and a server in the background has others ignored.
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                try:
                    signal.signal(number, signal.SIG_DFL)
                except (OSError, ValueError):  # the C library's own
                    pass
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            what = "cwd"
            os.chdir(directory)
            what = "argv"
            os.execvpe(argv[0], argv, environment)
        except (OSError, ValueError) as e:
            os.write(tell, ("%s %s" % (what, getattr(e, "strerror", "") or e)).encode())
        finally:
            os._exit(127)
    os.close(tell)
    why = b""
    while True:
        data = os.read(told, 4096)
        if not data:
            break
        why += data
    os.close(told)
    return child, why.decode("utf-8", "replace")


def oversee(child, began, limit, turn):
    """Wait for the program. Its status, or None, and why it is to end, which turn can say
    too; turn waits for something to happen, for so many seconds at most."""
    while True:
        status = reap(child)
        if status is not None:
            return status, ""
        rest = began + limit - time.monotonic() if limit else 3600
        if rest <= 0:
            return None, "timeout"
        why = turn(min(rest, 3600))
        if why:
            return None, why


def mark(path):
    """Something that changes with a regular file; None for anything else."""
    try:
        i = os.lstat(path)
    except OSError:
        return None
    return (i.st_ino, i.st_size, i.st_mtime_ns, i.st_ctime_ns) if stat.S_ISREG(i.st_mode) else None


def marks(directory):
    found = {}
    for at, _, names in os.walk(os.path.join(directory, "artifacts")):
        for name in names:
            m = mark(os.path.join(at, name))
            if m:
                found[os.path.relpath(os.path.join(at, name), directory)] = m
            if len(found) >= 10000:
                return found
    return found


def size_of(directory, name):
    """The size of a file that no symbolic link leads to; -1 if there is none."""
    path = os.path.normpath(os.path.join(directory, name))
    inside = os.path.realpath(path) == os.path.join(os.path.realpath(directory), os.path.relpath(path, directory))
    m = mark(path) if inside else None
    return m[1] if m else -1


def make_artifacts(directory):
    """Make artifacts/ for code that does not. Whatever has that name is left alone."""
    try:
        os.mkdir(os.path.join(directory, "artifacts"))
    except OSError:
        pass


class Artifacts:
    """Files that the program makes below artifacts/, and those that were asked for."""

    def __init__(self, wanted, directory):
        self.wanted, self.directory = wanted, directory
        self.before = marks(directory) if wanted else {}

    def made(self):
        if not self.wanted:
            return []
        after = marks(self.directory)
        names = list(self.wanted["files"])
        names += sorted(n for n in after if after[n] != self.before.get(n) and n not in names)
        return [{"name": n, "size": size_of(self.directory, n)} for n in names[:self.wanted["most"] + 1]]


def outcome(child, status, why, began, kills, counters, artifacts):
    """End all that is left of a program, and tell what became of it."""
    seconds = time.monotonic() - began
    left, killed = kill_all(child)
    status = killed if status is None else status
    code = -signal.SIGKILL if status is None else os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    now, peak = kills_for_memory(counters), 0
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    except Exception:
        pass
    return {
        "exit": code if code >= 0 else 128 - code, "reason": why, "error": "", "seconds": seconds, "left": left, "memory": now > kills,
        "kills": now, "peak": peak, "files": artifacts.made() if not why else [], "ended": time.time(),
    }
