# Runs one program for a service that streams what a process of its own prints, and stays
# until the program and everything that it has started are gone. What it tells stands in
# frames among the output. This file stands behind core.py of package supervise.
import base64
import json
import select
import zlib

WAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
STOPPING = {signal.SIGTERM, signal.SIGHUP}
COUNTERS = ("/proc/vmstat",)


def read_request():
    """Take the request out of the environment, so that nothing else gets it."""
    inline = os.environ.pop("SANDBOX_REQUEST", None)
    if inline is not None:
        return json.loads(zlib.decompress(base64.b64decode(inline)))
    path = os.environ.pop("SANDBOX_REQUEST_FILE")
    with open(path, "rb") as f:
        data = f.read()
    forget(path)
    return json.loads(data)


def forget(path):
    try:
        os.unlink(path)
    except OSError:
        pass


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


def turn(rest):
    """Wait for a signal; whether it is one to stop at."""
    info = signal.sigtimedwait(WAITED, rest)
    return "cancelled" if info is not None and info.si_signo in STOPPING else ""


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)
    request = read_request()
    become_reaper()
    marker = request["marker"]
    if request["file"]:
        with open(os.open(request["file"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", newline="") as f:
            f.write(request["source"])
        make_artifacts(request["cwd"])
    artifacts = Artifacts(request["artifacts"], request["cwd"])
    kills = kills_for_memory(COUNTERS)
    null = os.open(os.devnull, os.O_RDONLY)
    began = time.monotonic()
    child, error = spawn(
        request["argv"], {**os.environ, **request["env"]}, request["cwd"], {0: null} if request["empty_stdin"] else {},
        "" if request["terminal"] else "group")
    if error:
        forget(request["file"])
        tell(marker, done={"exit": 127, "error": error})
        return
    os.dup2(null, 0)  # else nobody could notice that the program has closed its input
    os.close(null)
    tell(marker, started=True)
    status, why = oversee(child, began, request["timeout"], turn)
    done = outcome(child, status, why, began, kills, COUNTERS, artifacts)
    forget(request["file"])
    tell(marker, done=done)
    return done["exit"]  # for who has missed the report


sys.exit(main())
