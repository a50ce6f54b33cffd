# Runs a program in a sandbox, and tells what it prints while it runs. It comes with
# each call: nothing of it stays in the sandbox but the directory of the execution.
#
#   run     start a program under a supervisor of its own, then watch it
#   watch   wait until there is more output, or the end, and print it
#   cancel  stop it with all that it started, and wait until that is done
#   setup   find out where code can work
#
# The supervisor is no child of the call: it survives it. It is the reaper of all
# that the program starts, so that nothing gets away by leaving its session.
import base64, errno, json, os, shutil, signal, sys, time

ROOT = "/tmp/.sandbox-broker"
PR_SET_CHILD_SUBREAPER = 36
STEP = 0.01
FORGET = 600


def read(path, default=""):
    try:
        with open(path) as f:
            return f.read()
    except (OSError, ValueError):
        return default


def kills_for_memory():
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        for line in read(path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def descendants():
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read("/proc/%s/stat" % name)
            if stat:
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    me, found = os.getpid(), []
    for pid in parents:
        up = parents.get(pid)
        while up and up != me:
            up = parents.get(up)
        if up == me and pid != me:
            found.append(pid)
    return found


def kill_all():
    # Again and again: what was just being started is seen the next time.
    while True:
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


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
    began, killed_before = time.monotonic(), kills_for_memory()
    child = os.fork()
    if child == 0:
        try:
            out = os.open(place + "/stdout", os.O_WRONLY | os.O_APPEND)
            err = os.open(place + "/stderr", os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.closerange(3, 1024)
            os.setpgid(0, 0)
            os.chdir(request["dir"])
            argv = [place + "/program" + request["suffix"] if a == "{}" else a for a in request["argv"]]
            os.execvp(argv[0], argv)
        except OSError as e:
            try:
                os.write(os.open(place + "/error", os.O_WRONLY | os.O_CREAT, 0o600), ("%s: %s" % (request["argv"][0], e.strerror)).encode())
            finally:
                os._exit(127)
    status = None
    while status is None:
        try:
            while True:
                pid, code = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    status = code
        except ChildProcessError:
            pass
        if status is not None:
            break
        if time.monotonic() - began >= request["timeout"]:
            done["reason"] = "timeout"
        elif os.path.exists(place + "/cancel"):
            done["reason"] = "cancelled"
        elif max(os.stat(place + "/" + s).st_size for s in ("stdout", "stderr")) > request["most"]:
            done["reason"] = "output"
        if done["reason"]:
            status = signal.SIGKILL
            break
        time.sleep(STEP)
    done["seconds"] = time.monotonic() - began
    kill_all()
    done["exit"] = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    done["error"] = read(place + "/error")
    if not done["reason"] and kills_for_memory() > killed_before:
        done["reason"] = "memory"
    try:
        import resource
        done["memory"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    except Exception:
        pass
    with open(place + "/done.new", "w") as f:
        json.dump(done, f)
    os.rename(place + "/done.new", place + "/done")


def forget():
    # What has ended long ago, so that the disk does not fill.
    for name in os.listdir(ROOT):
        try:
            if time.time() - os.stat(ROOT + "/" + name + "/done").st_mtime > FORGET:
                shutil.rmtree(ROOT + "/" + name, ignore_errors=True)
        except OSError:
            pass


def start(place, request):
    os.makedirs(ROOT, 0o700, exist_ok=True)
    forget()
    try:
        os.mkdir(place, 0o700)
    except FileExistsError:
        return  # the request came twice
    for name in ("stdout", "stderr"):
        open(place + "/" + name, "w").close()
    source = request["source"]
    if request["upload"]:
        with open(request["upload"], "rb") as f:
            source = f.read().decode()
        os.unlink(request["upload"])
    with open(place + "/program" + request["suffix"], "w", encoding="utf-8", newline="") as f:
        f.write(source)
    os.makedirs(request["dir"], exist_ok=True)
    if os.fork() == 0:
        try:
            if os.fork() == 0:
                supervise(place, request)
        finally:
            os._exit(0)
    os.wait()


def piece(path, offset, most):
    with open(path, "rb") as f:
        f.seek(offset)
        return f.read(most)


def watch(place, request):
    if not os.path.isdir(place):
        return {"unknown": True}
    end, seen = time.monotonic() + request["wait"], None
    while True:
        done = os.path.exists(place + "/done")  # before the output is read
        out, err = (piece(place + "/" + s, request[s], request["piece"]) for s in ("stdout", "stderr"))
        now = time.monotonic()
        if (out or err) and seen is None:
            seen = now
        # Code that prints is often about to end: that saves a call.
        if done or now >= end or seen is not None and now - seen > request["linger"]:
            break
        time.sleep(STEP)
    answer = {"stdout": base64.b64encode(out).decode(), "stderr": base64.b64encode(err).decode()}
    if done and len(out) < request["piece"] and len(err) < request["piece"]:
        answer["done"] = json.loads(read(place + "/done"))
    return answer


def cancel(place, request):
    if not os.path.isdir(place):
        return {"unknown": True}
    open(place + "/cancel", "w").close()
    end = time.monotonic() + request["wait"]
    while not os.path.exists(place + "/done") and time.monotonic() < end:
        time.sleep(STEP)
    return {}


def setup(_, request):
    for place in request["places"]:
        place = os.path.expanduser(place)
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK | os.X_OK):
            return {"workspace": place}
    return {"unknown": True}


def main():
    request = json.loads(base64.b64decode(sys.argv[1]).decode())
    place = ROOT + "/" + request["id"]
    if request["do"] == "run":
        start(place, request)
        answer = watch(place, request)
    else:
        answer = {"watch": watch, "cancel": cancel, "setup": setup}[request["do"]](place, request)
    sys.stdout.write("sandbox-broker:" + json.dumps(answer) + "\n")


main()
