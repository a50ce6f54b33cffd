# Runs one program in a sandbox and stays until the program and everything that it has
# started are gone. envd itself kills the direct child alone, and tells neither why a
# process was killed nor what else is left; this does. It needs Python 3.8 and nothing
# besides.
import base64
import ctypes
import json
import os
import select
import shutil
import signal
import stat
import sys
import time
import zlib

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
WAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
STOPPING = {signal.SIGTERM, signal.SIGHUP}
PATIENCE = 3  # seconds for processes that were killed to be gone


def read_request():
    """Take the request out of the environment, so that nothing else gets it."""
    inline = os.environ.pop("SANDBOX_REQUEST", None)
    if inline is not None:
        return json.loads(zlib.decompress(base64.b64decode(inline)))
    path = os.environ.pop("SANDBOX_REQUEST_FILE")
    with open(path, "rb") as f:
        data = f.read()
    try:
        os.unlink(path)
    except OSError:
        pass
    return json.loads(data)


def tell(marker, **what):
    """Tell the provider something, among the output."""
    frame = (marker + base64.b64encode(json.dumps(what).encode()).decode() + ";").encode()
    while frame:
        try:
            frame = frame[os.write(1, frame):]
        except BlockingIOError:  # a program can make the pipe so for us all
            select.select([], [1], [])
        except OSError:
            return


def killed_for_memory():
    """How many processes of the sandbox the kernel has killed so far for memory."""
    try:
        with open("/proc/vmstat") as f:
            for line in f:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def descendants():
    """The processes below this one that still run. None can get out from there, for
    orphans become our children."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                data = f.read()
        except OSError:
            continue
        state, parent = data[data.rindex(b")") + 2:].split()[:2]
        children.setdefault(int(parent), []).append((int(name), state))
    found, queue = [], [os.getpid()]
    while queue:
        for pid, state in children.get(queue.pop(), []):
            queue.append(pid)
            if state not in (b"Z", b"X"):
                found.append(pid)
    return found


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
        left = descendants()
        if not left or time.monotonic() > deadline:
            return len(left), ended
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody forks meanwhile
            for pid in left:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def regular(path):
    """A mark of a regular file that changes with it; None for anything else."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) if stat.S_ISREG(info.st_mode) else None


def files_below(root):
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            mark = regular(path)
            if mark is not None:
                found[path] = mark
            if len(found) >= 10000:
                return found
    return found


class Artifacts:
    """Files that the program makes below artifacts/, and those that were asked for."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.cwd = os.getcwd()
        self.root = os.path.join(self.cwd, "artifacts")
        self.before = files_below(self.root) if wanted else {}

    def made(self):
        if not self.wanted:
            return []
        after = files_below(self.root)
        paths = [os.path.join(self.cwd, name) for name in self.wanted["files"]]
        paths += sorted(p for p in after if after[p] != self.before.get(p) and p not in paths)
        found = []
        for path in paths[:self.wanted["most"] + 1]:
            mark = regular(path) if os.path.realpath(path) == os.path.normpath(path) else None
            found.append({"name": os.path.relpath(path, self.cwd), "size": mark[1] if mark else -1})
        return found


def spawn(request):
    """Start the program; None if there is no such program."""
    environment = dict(os.environ)
    environment.update(request["env"])
    argv = request["argv"]
    program = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if program is None:
        return None
    actions = []
    if request["empty_stdin"]:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    options = {} if request["terminal"] else {"setpgroup": 0}
    every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    try:
        return os.posix_spawn(program, argv, environment, file_actions=actions, setsigmask=[], setsigdef=every, **options)
    except OSError:
        return None


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    request = read_request()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # other processes of the user cannot look in
    marker = request["marker"]
    try:
        os.chdir(request["cwd"])
    except OSError as e:
        tell(marker, refused="cwd", why=e.strerror)
        return
    if request["file"]:
        with open(os.open(request["file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            f.write(request["source"])
    artifacts = Artifacts(request["artifacts"])
    memory = killed_for_memory()
    began = time.monotonic()
    child = spawn(request)
    if child is None:
        tell(marker, refused="argv", why="there is no such program")
        return
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # else nobody could notice that the program has closed its input
    os.close(null)
    tell(marker, started=True)
    status, why = None, ""
    while status is None and not why:
        status = reap(child)
        if status is not None:
            break
        rest = began + request["timeout"] - time.monotonic() if request["timeout"] else 3600
        if rest <= 0:
            why = "timeout"
            break
        info = signal.sigtimedwait(WAITED, min(rest, 3600))
        if info is not None and info.si_signo in STOPPING:
            why = "stopped"
    left, killed = kill_all(child)
    status = killed if status is None else status
    seconds = time.monotonic() - began
    if request["file"]:
        try:
            os.unlink(request["file"])
        except OSError:
            pass
    code = -signal.SIGKILL if status is None else os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    import resource

    kills = killed_for_memory()
    tell(
        marker, exit=code if code >= 0 else 128 - code, why=why, seconds=seconds, left=left,
        memory=kills > memory, kills=kills, peak=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        files=artifacts.made() if not why else [],
    )
    return code if code >= 0 else 128 - code  # for who has missed the report


sys.exit(main())
