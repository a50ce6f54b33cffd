# The supervisor of a program with a place. It is no child of the call that starts it: it
# survives it. This file stands behind core.py of package supervise and place.py; see
# calls.py.
import errno, select, struct


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

class Turn:
    """What a supervisor looks at again and again: files that ask it to end the program,
    the size of its output, and what is on its way."""

    def __init__(self, place, request, pump):
        self.place, self.request, self.pump, self.child, self.interrupted = place, request, pump, 0, None

    def __call__(self, _):
        now = time.monotonic()
        if os.path.exists(self.place + "/cancel") or self.interrupted is not None and now >= self.interrupted:
            return "cancelled"
        if not self.pump and max(os.stat(self.place + "/" + s + ".0").st_size for s in STREAMS) > self.request["most"]:
            return "output"
        if self.interrupted is None and os.path.exists(self.place + "/interrupt"):
            self.interrupted = now + self.request["grace"]
            send([self.child], signal.SIGINT, os.killpg)
        if not self.pump:
            time.sleep(STEP)
            return ""
        try:
            self.pump.turn(STEP)
        except OSError:  # the disk is full
            return "output"
        return ""


def supervise(place, request):
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, 1024)
    become_reaper()
    write_whole(place + "/pid", str(os.getpid()))
    artifacts = Artifacts(request["artifacts"], request["dir"])
    kills = kills_for_memory(COUNTERS)
    pump = Pump(place, request) if request["keep"] else None
    given = pump.child if pump else {n: os.open(place + "/" + s + ".0", os.O_WRONLY | os.O_APPEND) for n, s in enumerate(STREAMS, 1)}
    argv = [place + "/program" + request["suffix"] if a == "{}" and request["suffix"] else a for a in request["argv"]]
    turn = Turn(place, request, pump)
    began = time.monotonic()
    child, error = spawn(argv, {**os.environ, **request["env"]}, request["dir"], given, "session" if request["terminal"] else "group")
    turn.child = child
    for fd in set(given.values()):
        os.close(fd)
    if not error:
        open(place + "/started", "w").close()
    status, why = oversee(child, began, request["timeout"], turn)
    done = outcome(child, status, why, began, kills, COUNTERS, artifacts)
    try:
        while pump and pump.turn(0):
            pass
    except OSError:
        pass
    if turn.interrupted is not None:
        done["reason"] = "cancelled"
    done["error"] = error
    done.update({s: total(place, s) for s in STREAMS})
    write_whole(place + "/done", json.dumps(done))
