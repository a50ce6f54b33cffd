# Runs programs in a sandbox, and tells what they print while they run. It comes with
# each call: nothing of it stays in the sandbox but the directory of each program, its
# place.
#
#   run        start a program under a supervisor of its own, then watch it
#   watch      wait until there is more output, or the end, and print it
#   cancel     stop it with all that it started, and wait until that is done
#   interrupt  do what Ctrl-C does, and stop it if it goes on
#   signal     send a signal to all that it started
#   write      write to its standard input
#   resize     tell its terminal another size
#   state      what is known of it; list: of all commands
#   cell       have an interpreter run a cell, then watch it
#   recover    tell of what ended with a sandbox that was stopped
#   poke       send a signal to the kernel behind a place
#   setup      find out where code can work
#
# It is sent behind request.py, core.py of package supervise, place.py and supervise.py, as
# one script.
import base64, fcntl, json, os, select, signal, struct, sys, termios, time


def forget():
    # What has ended long ago, so that the disk does not fill.
    commands = []
    for name in places():
        place = ROOT + "/" + name
        try:
            ended = os.stat(place + "/done").st_mtime
        except OSError:
            continue
        if meta(place).get("command"):
            commands.append((ended, place))
        elif time.time() - ended > FORGET:
            drop([place])
    drop([place for _, place in sorted(commands)[:-REMEMBERED]])


def drop(old):
    if old:
        import shutil  # which takes long
        for place in old:
            shutil.rmtree(place, ignore_errors=True)


def make_root():
    if not os.path.isdir(ROOT):
        os.makedirs(ROOT, exist_ok=True)
        try:
            os.chmod(ROOT, 0o1777)  # a kernel may be another user
        except OSError:
            pass


def start(place, request):
    make_root()
    forget()
    try:
        os.mkdir(place)
    except FileExistsError:
        return  # the request came twice
    if request["suffix"]:
        with open(place + "/program" + request["suffix"], "w", encoding="utf-8", newline="") as f:
            f.write(request["source"])
        os.makedirs(request["dir"], exist_ok=True)
        make_artifacts(request["dir"])
    if not request["keep"]:
        for name in STREAMS:
            open(place + "/" + name + ".0", "w").close()
    about = {"id": request["id"], "argv": request["argv"], "cwd": request["dir"], "started": time.time(), "command": bool(request["keep"]) and not request["hidden"],
             "stdin": request["stdin"], "terminal": bool(request["terminal"])}
    write_whole(place + "/meta", json.dumps(about))
    if os.fork() == 0:
        try:
            if os.fork() == 0:
                supervise(place, request)
        finally:
            os._exit(0)
    os.wait()


def run(place, request):
    start(place, request)
    if request["keep"]:
        end = time.monotonic() + request["wait"]
        while time.monotonic() < end and not os.path.exists(place + "/started") and not os.path.exists(place + "/done"):
            time.sleep(0.002)
        return state(place, request)
    return watch(place, request)


def watch(place, request):
    if not os.path.isdir(place):
        return {"unknown": True}
    end, seen = time.monotonic() + request["wait"], None
    kernel = request["kernel"] and ROOT + "/" + request["kernel"]
    while True:
        gone = kernel and os.path.exists(kernel + "/done")  # before that of the cell
        done = os.path.exists(place + "/done")  # before the output is read
        out, err = (piece(place, s, request[s], request["piece"]) for s in STREAMS)
        now = time.monotonic()
        if (out[1] or err[1]) and seen is None:
            seen = now
        # Code that prints is often about to end: that saves a call.
        if done or gone or now >= end or seen is not None and now - seen > request["linger"]:
            break
        time.sleep(STEP)
    if gone and not done and not out[1] and not err[1]:
        return {"ended": True}
    answer = {}
    for name, (at, data) in zip(STREAMS, (out, err)):
        answer[name], answer[name + "_at"] = base64.b64encode(data).decode(), at
    if done:
        how = json.loads(read(place + "/done"))
        if all(at + len(data) >= how[s] for s, (at, data) in zip(STREAMS, (out, err))):
            answer["done"] = how
    if request["result"]:
        answer["result"], answer["kills"] = read(place + "/result"), kills_for_memory(COUNTERS)
    return answer


def cell(place, request):
    kernel = ROOT + "/" + request["kernel"]
    if not os.path.isdir(place):
        over = ended(kernel)
        if over:
            return over
        forget()
        new = place + ".new"
        os.makedirs(new, exist_ok=True)
        for name in STREAMS:
            open(new + "/" + name + ".0", "w").close()
        write_whole(new + "/request", request["source"])
        os.rename(new, place)
        try:
            pipe = os.open(kernel + "/stdin", os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, (request["id"] + "\n").encode())
        except OSError:
            return {"ended": True}
    return watch(place, request)


def state(place, _):
    if not os.path.isdir(place):
        return {"unknown": True}
    about = meta(place)
    done = read(place + "/done")
    about.update({s: total(place, s) for s in STREAMS})
    about["done"] = json.loads(done) if done else None
    about["signals"] = [int(line.split()[0]) for line in read(place + "/signals").splitlines()]
    about["taken"] = int(read(place + "/taken", "0"))
    about["closed"] = not about.get("stdin") or os.path.exists(place + "/stdin.closed")
    return {"state": about}


def list_all(_, request):
    found = []
    for name in places():
        if meta(ROOT + "/" + name).get("command"):
            found.append(state(ROOT + "/" + name, request)["state"])
    return {"states": found}


def ended(place):
    if not os.path.isdir(place):
        return {"unknown": True}
    return {"ended": True} if os.path.exists(place + "/done") else None


def write(place, request):
    if not os.path.isdir(place):
        return {"unknown": True}
    with open(place + "/writing", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        about = state(place, request)["state"]
        taken, data = about["taken"], base64.b64decode(request["data"] or "")
        closed = os.path.exists(place + "/stdin.closed")
        if about["stdin"] and taken == request["offset"] + len(data) and closed == request["end"]:
            return {"taken": taken}  # a call before, whose answer was lost, did it
        if about["closed"] or about["done"]:
            return {"ended": True}
        try:
            pipe = os.open(place + "/stdin", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return {"ended": True}
        data = data[max(0, taken - request["offset"]):]  # likewise
        end = time.monotonic() + request["wait"]
        while data and time.monotonic() < end:
            try:
                n = os.write(pipe, data)
            except BlockingIOError:
                if os.path.exists(place + "/done"):
                    return {"ended": True}
                select.select([], [pipe], [], 0.05)
                continue
            except OSError:
                return {"ended": True}
            taken, data = taken + n, data[n:]
            write_whole(place + "/taken", str(taken))
        if request["end"] and not data:
            open(place + "/stdin.closed", "w").close()
        return {"taken": taken}


def resize(place, request):
    over = ended(place)
    if over:
        return over
    try:
        tty = os.open(read(place + "/tty"), os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", request["rows"], request["columns"], 0, 0))
    except OSError:
        return {"ended": True}
    return {}


def send_signal(place, request):
    over = ended(place)
    if over:
        return over
    number = getattr(signal, request["signal"])
    if request["source"] in read(place + "/signals").split():
        return {}  # the request came twice
    with open(place + "/signals", "a") as f:
        f.write("%d %s\n" % (number, request["source"]))
    if not send(descendants(int(read(place + "/pid", "0")) or -1), number):
        return {"ended": True}
    return {}


def interrupt(place, _):
    over = ended(place)
    if over:
        return over
    open(place + "/interrupt", "w").close()
    return {}


def cancel(place, request):
    if not os.path.isdir(place):
        return {"unknown": True}
    open(place + "/cancel", "w").close()
    end = time.monotonic() + request["wait"]
    while not os.path.exists(place + "/done") and time.monotonic() < end:
        time.sleep(STEP)
    return {}


def recover(_, request):
    for name in places():
        place = ROOT + "/" + name
        if os.path.exists(place + "/done") or not os.path.exists(place + "/meta"):
            continue
        done = {"exit": 128 + signal.SIGKILL, "reason": "cancelled", "error": "", "seconds": 0, "ended": time.time()}
        done.update({s: total(place, s) for s in STREAMS})
        write_whole(place + "/done", json.dumps(done))
    return {}


def poke(place, request):
    pid = read(place + "/pid")
    text = read("/proc/%s/stat" % pid) if pid else ""
    if not text or text.rpartition(")")[2].split()[0] in "ZX":
        return {"ended": True}
    if request["signal"]:
        try:
            os.kill(int(pid), getattr(signal, request["signal"]))
        except OSError:
            return {"refused": True}
    return {}


def setup(_, request):
    for place in request["places"]:
        place = os.path.expanduser(place)
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:
            by_sudo(place)
        if os.access(place, os.W_OK | os.X_OK):
            return {"workspace": place, "note": request["source"] and note(request["source"])}
    return {"unknown": True}


def note(text):
    path = ROOT + "/note.json"
    if not os.path.exists(path):  # the first one stays
        make_root()
        with open(path + ".new", "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(text)
        os.rename(path + ".new", path)
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def by_sudo(place):
    # As far as that takes no password.
    import subprocess
    make = 'mkdir -p "$0" && chown "$1" "$0"'
    try:
        subprocess.run(["sudo", "-n", "sh", "-c", make, place, "%d:%d" % (os.getuid(), os.getgid())],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=8)
    except (OSError, subprocess.SubprocessError):
        pass


DO = {
    "run": run, "watch": watch, "cancel": cancel, "interrupt": interrupt, "signal": send_signal, "write": write,
    "resize": resize, "state": state, "list": list_all, "cell": cell, "recover": recover, "poke": poke, "setup": setup,
}


def main():
    request = asked()
    answer = DO[request["do"]](ROOT + "/" + request["id"], request)
    sys.stdout.write("sandbox-broker:" + json.dumps(answer) + "\n")


main()
