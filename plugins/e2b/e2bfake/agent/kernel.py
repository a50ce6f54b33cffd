# A kernel of the fake: runs cells in one namespace, and tells what they do in lines of
# JSON on descriptor 3, in the words of the code interpreter. Cells come as lines of
# JSON on standard input.
import ast
import asyncio
import builtins
import inspect
import io
import json
import linecache
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


def show(value, main):
    if value is None:
        return
    forms = {"text": value[:] if isinstance(value, str) else repr(value)}
    for name, method in {"html": "_repr_html_", "png": "_repr_png_", "json": "_repr_json_"}.items():
        if hasattr(value, method):
            forms[name] = getattr(value, method)()
    # Forms of E2B's own, for which its kernel has formatters. They want one of these types.
    for name, method in {"data": "_repr_e2b_data_", "chart": "_repr_e2b_chart_"}.items():
        if hasattr(value, method):
            made = getattr(value, method)()
            if isinstance(made, (dict, str)):
                forms[name] = made
    tell(type="result", extra={}, is_main_result=main, **forms)


class StdinNotImplementedError(RuntimeError):
    pass


def no_input(prompt=""):
    raise StdinNotImplementedError("raw_input was called, but this frontend does not support input requests.")


namespace = {"__name__": "__main__", "__builtins__": builtins, "display": lambda value: show(value, False)}
builtins.input = no_input
sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)


async def run(code):
    name = f"<cell {count}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    for part in (tree, last):
        if part is None:
            continue
        mode = "eval" if part is last else "exec"
        value = eval(compile(part, name, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
        if inspect.iscoroutine(value):
            value = await value
    if last is not None:
        show(value, True)


async def finish(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


count = 0
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as long as no cell runs
for line in cells:
    count += 1
    tell(type="number_of_executions", execution_count=count)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.run_until_complete(run(json.loads(line)["code"]))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except BaseException as e:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if isinstance(e, KeyboardInterrupt):
            loop.run_until_complete(finish(asyncio.all_tasks(loop)))
        # The parts are put together without an end of line between them.
        text = "" if isinstance(e, SystemExit) else "".join(part.rstrip("\n") for part in traceback.format_exception(e))
        tell(type="error", name=type(e).__name__, value=str(e), traceback="\x1b[0;31m" + text + "\x1b[0m")
    tell(type="end_of_execution")
