# A kernel of the fake: runs cells in one namespace, and tells what they do in lines of
# JSON on descriptor 3, in the words of the service. Cells come as lines of JSON on
# standard input. As IPython it is interrupted by SIGINT while a cell runs, and only then.
import ast
import asyncio
import builtins
import inspect
import io
import json
import os
import signal
import sys
import traceback

cells, events = os.fdopen(os.dup(0), "r"), os.fdopen(3, "w")
os.set_inheritable(events.fileno(), False)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def tell(**event):
    events.write(json.dumps(event) + "\n")
    events.flush()


class Stream(io.TextIOBase):
    encoding = "utf-8"

    def __init__(self, name):
        self.name = name

    def write(self, text):
        if text:
            tell(type=self.name, text=text)
        return len(text)


def show(value):
    if value is None:
        return
    forms = {"text/plain": repr(value)}
    for mime, method in {"text/html": "_repr_html_", "image/png": "_repr_png_"}.items():
        if hasattr(value, method):
            forms[mime] = getattr(value, method)()
    tell(type="result", data=forms, executionCount=1)


namespace = {"__name__": "__main__", "__builtins__": builtins}
sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)


async def run(code):
    tree = ast.parse(code, "<cell>")
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    for part in (tree, last):
        if part is None:
            continue
        mode = "eval" if part is last else "exec"
        value = eval(compile(part, "<cell>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
        if inspect.iscoroutine(value):
            value = await value
    if last is not None:
        show(value)


signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in cells:
    status = "ok"
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.run_until_complete(run(json.loads(line)["code"]))
    except BaseException as e:
        status = "error"
        tell(type="error", name=type(e).__name__, value=str(e), traceback=["\x1b[0;31m" + "".join(traceback.format_exception(e)).rstrip("\n") + "\x1b[0m"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell(type="endOfExecution", status=status)
