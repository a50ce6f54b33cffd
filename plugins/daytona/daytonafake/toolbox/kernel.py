# An interpreter of the fake: runs code in one namespace, and tells what it does in lines of
# JSON on descriptor 3. Code comes as lines of JSON on standard input.
import builtins
import io
import json
import os
import signal
import sys
import traceback

lines, events = os.fdopen(os.dup(0), "r"), os.fdopen(3, "w")
os.set_inheritable(events.fileno(), False)
null = os.open(os.devnull, os.O_RDWR)
for descriptor in range(3):
    os.dup2(null, descriptor)


def tell(type, text="", name="", value="", traceback=""):
    events.write(json.dumps({"type": type, "text": text, "name": name, "value": value, "traceback": traceback}) + "\n")
    events.flush()


class Stream(io.TextIOBase):
    encoding = "utf-8"

    def __init__(self, name):
        self.name = name

    def write(self, text):
        if text:
            tell(self.name, text)
        return len(text)


namespace = {"__name__": "__main__", "__builtins__": builtins}
sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as long as nothing runs
for line in lines:
    request = json.loads(line)
    before = dict(os.environ)
    os.environ.update(request["envs"])
    end = "completed"
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        exec(compile(request["code"], "<string>", "exec"), namespace)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as e:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if isinstance(e, KeyboardInterrupt):
            end = "interrupted"
        elif not isinstance(e, SystemExit):
            tell("error", name=type(e).__name__, value=str(e), traceback=traceback.format_exc())
    for name in request["envs"]:
        if name in before:
            os.environ[name] = before[name]
        else:
            os.environ.pop(name, None)
    tell("control", end)
