# The supervisor of a program. It is no child of the call that starts it: it survives it.
# It is the reaper of all that the program starts, so that nothing gets away by leaving
# its session. This file is the third of four; see calls.py.
import errno, fcntl, json, os, select, signal, struct, termios, time


def kill_all():
    # Again and again: what was just being started is seen the next time.
    while True:
        send(descendants(os.getpid()), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


class Kept:
    """The latest of what comes out of a pipe, in files named by the offset where they begin."""

    def __init__(self, place, name, keep):
        self.path, self.keep, self.size = place + "/" + name + ".", keep, max(keep, 1 << 16)
        self.total, self.starts = 0, [0]
        self.file = self.open(0)

    def open(self, start):
        return os.open(self.path + str(start), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, data):
        while data:
            room = self.size - (self.total - self.starts[-1])
            if room <= 0:
                os.close(self.file)
                self.starts.append(self.total)
                self.file = self.open(self.total)
                continue
            n = os.write(self.file, data[:room])
            self.total, data = self.total + n, data[n:]
        while len(self.starts) > 1 and self.total - self.starts[1] >= self.keep:
            os.unlink(self.path + str(self.starts.pop(0)))


class Pump:
    """Stands between a command and its files: it keeps the latest output, and minds a terminal."""

    def __init__(self, place, request):
        self.place, self.size = place, request["terminal"]
        self.kept = {}  # by the descriptor that is read
        self.input = self.closing = self.master = None
        self.pending = b""
        self.child = {}  # the descriptors that the child gets
        if request["stdin"]:
            os.mkfifo(place + "/stdin", 0o600)
            end = os.open(place + "/stdin", os.O_RDONLY | os.O_NONBLOCK)
            self.closing = os.open(place + "/stdin", os.O_WRONLY)
            if self.size:
                self.input = end
            else:
                os.set_blocking(end, True)
                self.child[0] = end
        if self.size:
            self.master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.size["rows"], self.size["columns"], 0, 0))
            write_whole(place + "/tty", os.ttyname(slave))
            os.set_blocking(self.master, False)
            self.child = {0: slave, 1: slave, 2: slave}
            self.kept[self.master] = Kept(place, "stdout", request["keep"])
            Kept(place, "stderr", request["keep"])
        else:
            for number, name in enumerate(STREAMS, 1):
                end, self.child[number] = os.pipe()
                os.set_blocking(end, False)
                self.kept[end] = Kept(place, name, request["keep"])

    def forked(self):
        for fd in set(self.child.values()):
            os.close(fd)

    def turn(self, wait):
        """Move what there is. Whether anything moved."""
        if self.closing is not None and os.path.exists(self.place + "/stdin.closed"):
            os.close(self.closing)
            self.closing = None
        readers = list(self.kept)
        if self.input is not None and len(self.pending) < 1 << 16:
            readers.append(self.input)
        ready, _, _ = select.select(readers, [], [], wait)
        for fd in ready:
            try:
                data = os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:  # a terminal that nobody has open any more
                data = b""
            if fd == self.input:
                self.pending += data
                if not data:
                    os.close(fd)
                    self.input = None
            elif data:
                self.kept[fd].write(data)
            else:
                del self.kept[fd]
        if self.pending:
            try:
                self.pending = self.pending[os.write(self.master, self.pending):]
            except OSError as e:
                if e.errno != errno.EAGAIN:
                    self.pending = b""
        if not readers:
            time.sleep(wait)
        return bool(ready)


class Artifacts:
    """Files that the program makes below artifacts/, and those that were asked for."""

    def __init__(self, request):
        self.wanted, self.dir = request["artifacts"], request["dir"]
        self.before = marks(self.dir) if self.wanted else {}

    def made(self):
        if not self.wanted:
            return []
        after = marks(self.dir)
        names = list(self.wanted["files"])
        names += sorted(n for n in after if after[n] != self.before.get(n) and n not in names)
        return [{"name": n, "size": size_of(self.dir, n)} for n in names[:self.wanted["most"] + 1]]


def spawn(place, request, pump):
    """Start the program. Returns its process once it runs, and why it does not."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        what = "argv"
        try:
            if pump:
                given = pump.child
            else:
                given = {n: os.open(place + "/" + s + ".0", os.O_WRONLY | os.O_APPEND) for n, s in enumerate(STREAMS, 1)}
            for number, fd in given.items():
                os.dup2(fd, number)
            if request["terminal"]:
                os.setsid()
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            else:
                os.setpgid(0, 0)
            # Python ignores some signals, and a server in the background has others ignored.
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                try:
                    signal.signal(number, signal.SIG_DFL)
                except (OSError, ValueError):  # the C library's own
                    pass
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            what = "cwd"
            os.chdir(request["dir"])
            what = "argv"
            argv = [place + "/program" + request["suffix"] if a == "{}" and request["suffix"] else a for a in request["argv"]]
            environment = dict(os.environ)
            environment.update(request["env"])
            os.execvpe(argv[0], argv, environment)
        except (OSError, ValueError) as e:
            os.write(tell, ("%s %s" % (what, getattr(e, "strerror", "") or e)).encode())
        finally:
            os._exit(127)
    os.close(tell)
    if pump:
        pump.forked()
    why = b""
    while True:
        data = os.read(told, 4096)
        if not data:
            break
        why += data
    os.close(told)
    return child, why.decode("utf-8", "replace")


def supervise(place, request):
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 1024)
    try:
        import ctypes
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except Exception:
        pass  # then only what stays below the program is found
    done = {"exit": 127, "reason": "", "error": "", "memory": 0}
    write_whole(place + "/pid", str(os.getpid()))
    artifacts = Artifacts(request)
    began, killed_before = time.monotonic(), kills_for_memory()
    pump = Pump(place, request) if request["keep"] else None
    child, done["error"] = spawn(place, request, pump)
    if not done["error"]:
        open(place + "/started", "w").close()
    status, interrupted = None, None
    while True:
        try:
            while status is None:
                pid, code = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    status = code
        except ChildProcessError:
            pass
        if status is not None:
            break
        now = time.monotonic()
        if request["timeout"] and now - began >= request["timeout"]:
            done["reason"] = "timeout"
        elif os.path.exists(place + "/cancel"):
            done["reason"] = "cancelled"
        elif interrupted is not None and now >= interrupted:
            done["reason"] = "cancelled"
        elif not pump and max(os.stat(place + "/" + s + ".0").st_size for s in STREAMS) > request["most"]:
            done["reason"] = "output"
        if done["reason"]:
            status = signal.SIGKILL
            break
        if interrupted is None and os.path.exists(place + "/interrupt"):
            interrupted = now + request["grace"]
            try:
                os.killpg(child, signal.SIGINT)
            except OSError:
                pass
        if not pump:
            time.sleep(STEP)
            continue
        try:
            pump.turn(STEP)
        except OSError:  # the disk is full
            done["reason"], status = "output", signal.SIGKILL
            break
    done["seconds"] = time.monotonic() - began
    kill_all()
    try:
        while pump and pump.turn(0):
            pass
    except OSError:
        pass
    if interrupted is not None:
        done["reason"] = "cancelled"
    done["exit"] = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if not done["reason"] and kills_for_memory() > killed_before:
        done["reason"] = "memory"
    try:
        import resource
        done["memory"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    except Exception:
        pass
    done["files"] = artifacts.made() if not done["reason"] else []
    done["ended"] = time.time()
    done.update({s: total(place, s) for s in STREAMS})
    write_whole(place + "/done", json.dumps(done))
