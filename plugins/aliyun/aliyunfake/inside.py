# The inside of a fake sandbox: runs commands, moves files and keeps kernels, as lines of
# JSON ask. The first argument is the source of kernel.py, the second that of kernel.js,
# the third says what the service is like.
import base64, json, os, signal, subprocess, sys, threading, time

lock = threading.Lock()
kernels = {}
options = json.loads(sys.argv[3])
SUDO = """#!/bin/sh
if [ "$1" != -n ] || ! %s; then echo "sudo: a password is required" >&2; exit 1; fi
shift
chmod 0755 /; "$@"; status=$?; chmod 0555 /
exit $status
"""


def be_a_user():
    # The root directory belongs to this user, who has no rights to pass it by.
    os.makedirs("/fake/bin")
    with open("/fake/bin/sudo", "w") as f:
        f.write(SUDO % ("true" if options["sudo"] else "false"))
    os.chmod("/fake/bin/sudo", 0o755)
    for path in ("/fake/bin", "/fake", "/home", "/"):
        os.chmod(path, 0o555)


def refused(status, code, message):
    return {"httpStatus": status, "error": {"code": code, "message": message}}


def command(request):
    began = time.monotonic()
    try:
        p = subprocess.run(["sh", "-c", request["command"]], cwd=request["cwd"] or "/home/user", stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=request["timeout"])
        status, code, out, err = "completed", p.returncode, p.stdout, p.stderr
    except subprocess.TimeoutExpired as e:
        status, code, out, err = "timeout", 124, e.stdout or b"", e.stderr or b""
    ms = int((time.monotonic() - began) * 1000)
    return {"executionId": "x%d" % request["n"], "status": status, "executionTimeMs": ms, "result": {
        "exitCode": code, "stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace"),
        "cwd": request["cwd"], "executionTimeMs": ms}}


def upload(request):
    data = base64.b64decode(request["content"])
    os.makedirs(os.path.dirname(request["path"]) or "/", exist_ok=True)
    with open(request["path"], "wb") as f:
        f.write(data)
    return {"path": request["path"], "size": len(data)}


def download(request):
    try:
        with open(request["path"], "rb") as f:
            return {"content": base64.b64encode(f.read()).decode()}
    except OSError as e:
        return refused(404, "NOT_FOUND", str(e))


class Kernel:
    def __init__(self, language, cwd):
        self.id, self.language, self.cwd = os.urandom(16).hex(), language, cwd or "/home/user"
        argv = {"python": ["/usr/bin/python3", "-c", sys.argv[1]], "javascript": ["/usr/bin/node", "-e", sys.argv[2]] + ["notebook"] * options["notebook"]}[language]
        events, told = os.pipe()
        os.makedirs(self.cwd, exist_ok=True)
        self.turn = threading.Lock()
        # The kernel finds its end of the pipe as descriptor 3. It does not get the pipe of the
        # answers: Node would make that not wait for who reads, and what does not fit would be lost.
        self.process = subprocess.Popen(["bash", "-c", 'exec 3>&%d; exec "$@"' % told, "bash"] + argv, stdin=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.cwd,
                                        pass_fds=[told], start_new_session=True)
        os.close(told)
        self.events = os.fdopen(events)

    def about(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def run(self, code):
        with self.turn:
            try:
                self.process.stdin.write((json.dumps({"code": code}) + "\n").encode())
                self.process.stdin.flush()
            except OSError:
                return None
            results = []
            for line in self.events:
                results.append(json.loads(line))
                if results[-1]["type"] == "endOfExecution":
                    return results
            return None

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()


def create_context(request):
    k = Kernel(request["language"], request["cwd"])
    kernels[k.id] = k
    return k.about()


def list_contexts(_):
    return [k.about() for k in list(kernels.values())]


def delete_context(request):
    k = kernels.pop(request["id"], None)
    if not k:
        return refused(404, "NOT_FOUND", "no such context")
    k.end()
    return {}


def execute(request):
    k = kernels.get(request["id"])
    if not k:
        return refused(404, "NOT_FOUND", "no such context")
    found, end = [], time.monotonic() + request["timeout"]
    runs = threading.Thread(target=lambda: found.append(k.run(request["code"])), daemon=True)
    runs.start()
    runs.join(request["timeout"])
    if not found:  # the kernel goes on: nobody interrupts it
        return refused(504, "TIMEOUT", "gateway timeout")
    if found[0] is None:
        if k.id in kernels:
            k.process.wait()
        if options["notebook"] and k.language == "javascript":
            time.sleep(max(0, end - time.monotonic()))  # nobody tells that it has ended
            return refused(504, "TIMEOUT", "gateway timeout")
        return refused(500, "INTERNAL_ERROR", "the kernel died")
    return {"results": found[0], "contextId": k.id}


def pause(_):
    with lock:  # nobody is frozen within a line
        os.kill(-1, signal.SIGSTOP)
    return {}


def resume(_):
    os.kill(-1, signal.SIGCONT)
    return {}


DO = {
    "command": command, "upload": upload, "download": download, "create_context": create_context, "list_contexts": list_contexts,
    "delete_context": delete_context, "execute": execute, "pause": pause, "resume": resume,
}


def serve(request):
    try:
        answer = DO[request["do"]](request)
    except Exception as e:
        answer = refused(400, "INVALID_REQUEST", str(e))
    with lock:
        sys.stdout.write(json.dumps({"n": request["n"], "answer": answer}) + "\n")
        sys.stdout.flush()


signal.signal(signal.SIGINT, signal.SIG_IGN)  # as servers in the background do
if options["user"]:
    be_a_user()
print(json.dumps({"n": 0, "answer": {}}), flush=True)
for line in sys.stdin:
    threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
