"""Calls a provisioner and its sandboxes as DeerFlow does, with the standard library alone:
its order of calls, its time limits, what it reads of the answers, and what it takes for a
failure.

usage: client.py SCENARIO PROVISIONER KEY [ARGUMENT...]

A scenario prints what becomes of each feature: "works NAME" or "refused NAME".
"""
import base64
import hashlib
import json
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

SLOWER = 6  # how much slower a machine may be that runs tests than one that serves users


class Refused(Exception):
    """A status that is not 2xx, which the client raises and shows to its model."""

    def __init__(self, status, text):
        super().__init__("HTTP %d: %s" % (status, text))
        self.status, self.text = status, text
        self.body = json.loads(text)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(NoRedirects, urllib.request.ProxyHandler({}))


def call(method, url, body=None, headers=None, timeout=600, read=None):
    request = urllib.request.Request(url, method=method, headers=headers or {})
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with OPENER.open(request, data, timeout) as answer:
            return read(answer) if read else json.loads(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise Refused(error.code, error.read().decode()) from None


class Provisioner:
    def __init__(self, url, key):
        self.url = url.rstrip("/")
        self.headers = {"X-API-Key": key} if key else {}

    def call(self, method, path, timeout, body=None):
        return call(method, self.url + path, body, self.headers, timeout * SLOWER)

    def create(self, sandbox_id, thread_id="thread-1", user_id="user_1", **more):
        body = {
            "sandbox_id": sandbox_id, "thread_id": thread_id, "user_id": user_id, "include_legacy_skills": False,
            "provision_lark_cli_runtime": False, "provision_lark_cli_broker": False, **more,
        }
        return self.call("POST", "/api/sandboxes", 30, body)["sandbox_url"]

    def discover(self, sandbox_id):
        try:
            return self.call("GET", "/api/sandboxes/" + sandbox_id, 10)["sandbox_url"]
        except Refused:
            return None

    def alive(self, sandbox_id):
        try:
            return self.call("GET", "/api/sandboxes/" + sandbox_id, 10).get("status") == "Running"
        except Refused as refused:
            if refused.status == 404:
                return False
            raise

    def list(self):
        found = self.call("GET", "/api/sandboxes", 10)["sandboxes"]
        return {one["sandbox_id"]: one["sandbox_url"] for one in found if one["sandbox_id"] and one["sandbox_url"]}

    def destroy(self, sandbox_id):
        return self.call("DELETE", "/api/sandboxes/" + sandbox_id, 15)

    def capabilities(self):
        got = self.call("GET", "/api/capabilities", 5)
        return got["lark_cli_init_image"] is True, got["lark_cli_broker_image"] is True

    def obtain(self, sandbox_id):
        """What a turn of a conversation begins with."""
        url = self.discover(sandbox_id)
        if url is None:
            url = self.create(sandbox_id)
            wait_ready(url)
        return Sandbox(url)


def wait_ready(url):
    until = time.monotonic() + 60 * SLOWER
    while time.monotonic() < until:
        try:
            call("GET", url + "/v1/sandbox", timeout=5 * SLOWER)
            return
        except (Refused, OSError):
            time.sleep(1)
    raise AssertionError("the sandbox is not ready")


def need(data, *fields):
    """What the models of the SDK require: else parsing fails."""
    for field in fields:
        assert field in data, "%s is missing in %s" % (field, data)
    return data


class Sandbox:
    def __init__(self, url):
        assert not url.endswith("/")
        self.url = url

    def call(self, path, body):
        answer = call("POST", self.url + path, body)
        return answer["data"]  # success is not looked at

    def home(self):
        context = need(call("GET", self.url + "/v1/sandbox"), "home_dir", "version", "detail")
        detail = need(context["detail"], "system", "runtime", "utils")
        need(detail["system"], "os", "os_version", "arch", "user", "home_dir", "timezone", "occupied_ports")
        for tool in need(detail["runtime"], "python", "nodejs")["python"]:
            need(tool, "ver", "bin", "alias")
        return context["home_dir"]

    def execute(self, command, no_change_timeout=600, id=None):
        body = {"command": command, "no_change_timeout": no_change_timeout}
        if id:
            body["id"] = id
        data = need(self.call("/v1/shell/exec", body), "session_id", "command", "status")
        assert data["status"] in ("running", "completed", "no_change_timeout", "hard_timeout", "terminated")
        for entry in data["console"]:
            need(entry, "ps1", "command")
        output = data["output"] or ""
        assert "'ErrorObservation' object has no attribute 'exit_code'" not in output
        self.status = data["status"]
        return output

    def execute_env(self, command, env):
        data = self.call("/v1/bash/exec", {"command": command, "env": env, "hard_timeout": 600.0})
        need(data, "session_id", "command_id", "command", "status")
        assert data["status"] in ("pending", "running", "completed", "timed_out", "killed")
        return data["stdout"] or "", data["stderr"] or ""

    def read(self, file, start_line=None, end_line=None):
        body = {"file": file}
        if start_line is not None:
            body["start_line"] = start_line
        if end_line is not None:
            body["end_line"] = end_line
        return need(self.call("/v1/file/read", body), "content", "file")["content"]

    def write(self, file, content):
        body = {"file": file, "content": content}
        if isinstance(content, bytes):
            body = {"file": file, "content": base64.b64encode(content).decode(), "encoding": "base64"}
        need(self.call("/v1/file/write", body), "file")

    def append(self, file, content):
        try:
            before = self.read(file)
        except Refused:
            before = ""
        self.write(file, before + content)

    def find(self, path, glob):
        return need(self.call("/v1/file/find", {"path": path, "glob": glob}), "path")["files"]

    def list(self, path):
        data = need(self.call("/v1/file/list", {"path": path, "recursive": True, "show_hidden": False}), "path")
        return [need(entry, "name", "path", "is_directory")["path"] for entry in data["files"]]

    def grep(self, path, pattern, fixed=False, ignore_case=False, max_results=100):
        data = need(self.call("/v1/file/grep", {
            "path": path, "pattern": pattern, "case_insensitive": ignore_case, "fixed_strings": fixed,
            "max_results": max_results, "max_file_size": "1M", "recursive": True,
        }), "path", "pattern")
        for match in data["matches"]:
            need(match, "file", "line_number", "line_content")
        return [(m["file"], m["line_number"], m["line_content"]) for m in data["matches"]], data["truncated"]

    def download(self, path, limit=100 << 20):
        """Returns the size and the hash of a file."""
        def read(answer):
            size, digest = 0, hashlib.sha256()
            while piece := answer.read(1 << 16):
                size += len(piece)
                if size > limit:
                    raise AssertionError("larger than the client takes")
                digest.update(piece)
            return size, digest.hexdigest()
        return call("GET", self.url + "/v1/file/download?" + urllib.parse.urlencode({"path": path}), read=read)


def equal(got, want):
    assert got == want, "got %r, and not %r" % (got, want)


def feature(name, use):
    try:
        use()
    except Refused as refused:
        if refused.status != 501:
            raise
        print("refused", name, flush=True)
    else:
        print("works", name, flush=True)


def refuses(status, use, *args):
    try:
        use(*args)
    except Refused as refused:
        equal(refused.status, status)
        assert refused.body["code"].startswith("SB") and refused.body["success"] is False, refused.text
        return refused
    raise AssertionError("it was not refused")


DATA = "/mnt/user-data"


def features(p):
    """What DeerFlow uses, once each."""
    box = None

    def lifecycle():
        nonlocal box
        equal(p.discover("f00d000000000001"), None)
        box = p.obtain("f00d000000000001")
        equal(p.discover("f00d000000000001"), box.url)
        assert p.alive("f00d000000000001")
        equal(p.list(), {"f00d000000000001": box.url})
        equal(p.capabilities(), (False, False))
        equal(box.home(), DATA + "/workspace")

    def shell():
        equal(box.execute("pwd"), DATA + "/workspace\n")
        equal(box.execute("cd /tmp; export A=1; b=2; f() { echo \"f $1\"; }"), "")
        equal(box.execute("pwd; echo $A $b; f x"), "/tmp\n1 2\nf x\n")
        equal(box.execute("echo out; echo err >&2; echo out again"), "out\nerr\nout again\n")
        equal(box.execute("cat <<'END'\nit's \"a\" $text\nEND\n# and a comment"), "it's \"a\" $text\n")
        equal(box.execute("false"), "")
        assert "syntax error" in box.execute("if then")
        assert "not found" in box.execute("no_such_program")
        equal(box.execute("cat; echo read"), "read\n")
        equal(box.execute("exec >/tmp/elsewhere; echo hidden"), "")
        equal(box.execute("exec >&2; cat /tmp/elsewhere"), "hidden\n")
        equal(box.execute("break; continue; return; echo on").splitlines()[-1], "on")
        box.execute("exit 3")
        equal(box.execute("pwd; echo [$A]"), DATA + "/workspace\n[]\n")
        equal(box.execute("find %s -maxdepth 2 -type f -o -type d 2>/dev/null | head -500" % DATA).splitlines()[0], DATA)

    def hung():
        equal(box.execute("echo begun; sleep 1000", no_change_timeout=2), "begun\n")
        equal(box.status, "no_change_timeout")
        equal(box.execute("echo next"), "next\n")
        equal(box.execute("echo slow; sleep 3; touch /tmp/slow", no_change_timeout=1), "slow\n")
        until = time.monotonic() + 60
        while not box.execute("test -e /tmp/slow && echo there", id="looking"):
            assert time.monotonic() < until
        call("DELETE", box.url + "/v1/shell/sessions/looking")

    def sessions():
        call("POST", box.url + "/v1/shell/sessions/create", {"id": "retry"})
        equal(need(call("POST", box.url + "/v1/shell/sessions/create", {"id": "retry"})["data"], "session_id", "working_dir")["session_id"], "retry")
        box.execute("x=own", id="retry")
        equal(box.execute("echo $x", id="retry"), "own\n")
        equal(box.execute("echo [$x]"), "[]\n")
        call("DELETE", box.url + "/v1/shell/sessions/retry")
        equal(box.execute("echo [$x]", id="retry"), "[]\n")
        call("DELETE", box.url + "/v1/shell/sessions/retry")

    def environment():
        equal(box.execute_env("echo $SECRET; echo err >&2; exit 7", {"SECRET": "s3cret"}), ("s3cret\n", "err\n"))
        equal(box.execute("echo [$SECRET]; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c s3cret"), "[]\n0\n")
        equal(box.execute_env("echo [$SECRET]; pwd", {}), ("[]\n%s/workspace\n" % DATA, ""))

    def files():
        box.write(DATA + "/uploads/deep/er/text.txt", "one\ntwo\nthr\u00e9\u00e9 \U0001f98c\n")
        equal(box.read(DATA + "/uploads/deep/er/text.txt"), "one\ntwo\nthr\u00e9\u00e9 \U0001f98c\n")
        equal(box.read(DATA + "/uploads/deep/er/text.txt", 1, 2), "two\n")
        equal(box.read(DATA + "/uploads/deep/er/text.txt", 1), "two\nthr\u00e9\u00e9 \U0001f98c\n")
        equal(box.execute("cat %s/uploads/deep/er/text.txt" % DATA), "one\ntwo\nthr\u00e9\u00e9 \U0001f98c\n")
        box.append(DATA + "/outputs/new.txt", "a")
        box.append(DATA + "/outputs/new.txt", "b")
        equal(box.read(DATA + "/outputs/new.txt"), "ab")
        box.write(DATA + "/outputs/empty", "")
        equal(box.read(DATA + "/outputs/empty"), "")
        box.write(DATA + "/outputs/bytes.bin", bytes(range(256)))
        equal(box.download(DATA + "/outputs/bytes.bin"), (256, hashlib.sha256(bytes(range(256))).hexdigest()))
        refuses(404, box.read, DATA + "/nothing")
        refuses(404, box.download, DATA + "/nothing")
        refuses(422, box.read, "relative")
        refuses(422, box.read, DATA + "/outputs/bytes.bin")

    def finding():
        box.execute("mkdir -p %s/workspace/src/.hidden && cd %s/workspace/src && touch a.py b.txt .hidden/c.py && mkdir sub && touch sub/d.py && cd -" % (DATA, DATA))
        src = DATA + "/workspace/src"
        equal(sorted(box.find(src, "**/*.py")), [src + "/.hidden/c.py", src + "/a.py", src + "/sub/d.py"])
        equal(box.find(src, "*.py"), [src + "/a.py"])
        equal(sorted(box.list(src)), [src + "/a.py", src + "/b.txt", src + "/sub", src + "/sub/d.py"])

    def grep():
        src = DATA + "/workspace/src"
        box.write(src + "/a.py", "import os\n\nprint(os.name)\n")
        box.write(src + "/sub/d.py", "IMPORT os\n")
        equal(box.grep(src, "^import"), ([(src + "/a.py", 1, "import os")], False))
        equal(len(box.grep(src, "IMPORT", ignore_case=True)[0]), 2)
        equal(box.grep(src, "os.name)", fixed=True)[0], [(src + "/a.py", 3, "print(os.name)")])
        equal(len(box.grep(src, "o", max_results=1)[0]), 1)
        equal(box.grep(src, "o", max_results=1)[1], True)

    def ending():
        p.destroy("f00d000000000001")
        p.destroy("f00d000000000001")
        equal(p.alive("f00d000000000001"), False)
        refuses(404, box.read, DATA + "/outputs/new.txt")
        refuses(410, box.execute_env, "true", {})  # 404 would be remembered for all sandboxes

    feature("sandboxes: create, discover, alive, list", lifecycle)
    feature("the shell: directory, variables, order of output", shell)
    feature("the shell: a command that hangs", hung)
    feature("the shell: sessions", sessions)
    feature("programs with an environment of their own", environment)
    feature("files: read, write, append, download", files)
    feature("files: list, find", finding)
    feature("files: grep", grep)
    feature("sandboxes: end", ending)


def race(p):
    """Two gateways ask for one conversation."""
    urls = []
    threads = [threading.Thread(target=lambda: urls.append(p.create("race000000000001"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(len(urls), 4)
    equal(len(set(urls)), 1)
    equal(p.list(), {"race000000000001": urls[0]})
    p.destroy("race000000000001")
    other = p.create("race000000000001")
    assert other != urls[0]
    refuses(404, Sandbox(urls[0]).execute, "true")
    print("raced")


def large(p):
    """Files and output of the size that DeerFlow has."""
    box = p.obtain("1a46e00000000001")
    lines = box.execute("for i in $(seq 10000); do if (( i % 3 )); then echo $i; else echo $i >&2; fi; done")
    equal(lines, "".join("%d\n" % i for i in range(1, 10001)))
    upload = bytes(1000003) * 52 + b"end"  # more than 50 MB, and no whole number of anything
    began = time.monotonic()
    box.write(DATA + "/uploads/large.bin", upload)
    print("uploaded %d bytes in %.1f s" % (len(upload), time.monotonic() - began))
    equal(box.execute("sha256sum <%s/uploads/large.bin" % DATA).split()[0], hashlib.sha256(upload).hexdigest())
    box.execute("rm %s/uploads/large.bin; head -c 104857600 /dev/zero >%s/outputs/100" % (DATA, DATA))
    began = time.monotonic()
    equal(box.download(DATA + "/outputs/100")[0], 100 << 20)
    print("downloaded 100 MiB in %.1f s" % (time.monotonic() - began))
    box.execute("echo >>%s/outputs/100" % DATA)
    refuses(413, box.read, DATA + "/outputs/100")
    box.execute("rm %s/outputs/100" % DATA)
    text = "".join("line %d of a text that is larger than what is looked at\n" % i for i in range(100000))
    box.write(DATA + "/workspace/text", text)
    equal(box.read(DATA + "/workspace/text"), text)
    equal(box.read(DATA + "/workspace/text", 99999), "line 99999 of a text that is larger than what is looked at\n")
    p.destroy("1a46e00000000001")


def create(p, sandbox_id):
    print(p.create(sandbox_id))


def alive(p, sandbox_id):
    print(p.alive(sandbox_id))


def execute(p, sandbox_id, command):
    sys.stdout.write(p.obtain(sandbox_id).execute(command))


def main():
    scenarios = {f.__name__: f for f in (features, race, large, create, alive, execute)}
    scenarios[sys.argv[1]](Provisioner(sys.argv[2], sys.argv[3]), *sys.argv[4:])


main()
