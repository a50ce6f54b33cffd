# What a kernel needs for executions whose output is seen while they run. It is loaded
# into the kernel once, as a module of its own; begin is called before each execution.
#
# From begin on all that is printed, by processes that the code starts too, goes to files
# in the place of the execution, byte for byte: package place reads them there. The
# program stands behind returned.py of package kernelmain.
import io
import os
import shutil
import sys

ROOT = "/tmp/.sandbox-broker"


class AtOnce(io.BufferedWriter):
    def write(self, data):
        n = super().write(data)
        self.flush()
        return n


def stream(number):
    raw = io.FileIO(number, "wb", closefd=False)
    return io.TextIOWrapper(AtOnce(raw), encoding="utf-8", errors="backslashreplace", write_through=True)


place, before = None, {}
# The same for all executions: the code may have kept them.
streams = stream(1), stream(2)


def begin(encoded):
    global place, before
    request = json.loads(base64.b64decode(encoded))
    os.makedirs(ROOT, exist_ok=True)
    try:
        os.chmod(ROOT, 0o1777)  # commands may be another user's
    except OSError:
        pass
    old, place = place, ROOT + "/" + request["id"]
    os.mkdir(place)
    os.chmod(place, 0o777)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(place + "/" + name + ".0", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = streams
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    before = {name: os.environ.get(name) for name in request["env"]}
    os.environ.update(request["env"])
    if request["dir"]:
        os.makedirs(request["dir"], exist_ok=True)
        os.chdir(request["dir"])
    if request["artifacts"]:
        try:
            os.mkdir(request["artifacts"])
        except OSError:
            pass  # it is there, or something else of that name
    with open(place + "/pid", "w") as f:
        f.write(str(os.getpid()))
    if old:
        shutil.rmtree(old, ignore_errors=True)


async def call(main, encoded):
    _, data = await returned(main, encoded)
    with open(place + "/result", "wb") as f:
        f.write(data)
