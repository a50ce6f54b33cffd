# The inside of a fake sandbox: runs commands and writes files, as lines of JSON ask.
import base64, json, os, subprocess, sys, threading, time

lock = threading.Lock()


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


def serve(request):
    try:
        answer = {"command": command, "upload": upload}[request["do"]](request)
    except Exception as e:
        answer = {"error": {"code": "INVALID_REQUEST", "message": str(e)}}
    with lock:
        sys.stdout.write(json.dumps({"n": request["n"], "answer": answer}) + "\n")
        sys.stdout.flush()


print(json.dumps({"n": 0, "answer": {}}), flush=True)
for line in sys.stdin:
    threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
