# An interpreter that keeps its state from one cell to the next. It is a command with a
# place of its own (see calls.py of package place): each line of its input is the name of
# the place of a cell, where the request is, and where output and outcome go. Code shares
# the process with it: what it does to this it does to itself alone.
#
# This file stands behind returned.py of the SDK, which has express.
import ast
import base64
import builtins
import inspect
import io
import linecache
import os
import signal
import time
import traceback
import types

ROOT = "/tmp/.sandbox-broker"
PID = os.getpid()
MOST_SHOWN = 8 << 20  # bytes of a form of a value
MAX_SOURCES = 1000  # whose lines tracebacks can show
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FORMS = {
    "_repr_html_": "text/html", "_repr_markdown_": "text/markdown", "_repr_latex_": "text/latex", "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png", "_repr_jpeg_": "image/jpeg", "_repr_json_": "application/json",
}


class AtOnce(io.BufferedWriter):
    def write(self, data):
        n = super().write(data)
        self.flush()
        return n


def stream(number):
    raw = io.FileIO(number, "wb", closefd=False)
    return io.TextIOWrapper(AtOnce(raw), encoding="utf-8", errors="backslashreplace", write_through=True)


def encode(data):
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        return data.encode("utf-8", "replace")
    return json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")


def forms(value):
    """The representations of a value by MIME type."""
    found = {"text/plain": repr(value)}
    if type(value) in (dict, list):
        try:
            found["application/json"] = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass  # it has no such form
    for name, mime in FORMS.items():
        method = getattr(type(value), name, None)  # of the class: some objects claim to have any
        if method is not None:
            found[mime] = method(value)
    bundle = getattr(type(value), "_repr_mimebundle_", None)
    if bundle is not None:
        more = bundle(value, include=None, exclude=None)
        found.update(more[0] if isinstance(more, tuple) else more or {})
    return found


def told(error):
    """An error with its traceback, which begins with the lines of the code."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename == told.__code__.co_filename:
        tb = tb.tb_next
    try:
        value = str(error)
    except Exception:
        value = ""
    if isinstance(error, SystemExit):
        value = "None" if error.code is None else str(error.code)
    try:
        trace = "".join(traceback.format_exception(type(error), error, tb))
    except Exception:
        trace = ""
    return {"name": type(error).__name__, "value": value, "traceback": trace}


class Kernel:
    def __init__(self):
        self.count, self.flags, self.loop, self.values = 0, TOP_LEVEL_AWAIT, None, []
        self.module = types.ModuleType("__main__")
        self.module.__builtins__ = builtins
        sys.modules["__main__"] = self.module
        sys.path[0] = os.getcwd()
        sys.argv = [""]
        builtins.display = lambda *values: [self.show(value, False) for value in values] and None
        # The same for all cells: the code may have kept them.
        self.streams = stream(1), stream(2)

    def run(self, name):
        place, began = ROOT + "/" + name, time.monotonic()
        with open(place + "/request", encoding="utf-8") as f:
            request = json.load(f)
        os.unlink(f.name)  # its variables are for this code alone
        for number, which in ((1, "stdout"), (2, "stderr")):
            file = os.open(place + "/" + which + ".0", os.O_WRONLY | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
        sys.stdout, sys.stderr = self.streams
        self.values, answer = [], {}
        try:
            # The code may have set another.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                self.cell(request, answer)
                self.figures()
            except BaseException as e:
                answer["error"] = told(e)
        except KeyboardInterrupt as e:  # it came while something else was told
            answer["error"] = told(e)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for s in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                s.flush()
            except BaseException:  # the code replaced or closed it
                pass
        if os.getpid() != PID:  # the code has forked, and this is the child
            os._exit(1 if "error" in answer else 0)
        answer["values"] = self.values
        self.write(place + "/result", answer)
        sizes = {which: os.stat(place + "/" + which + ".0").st_size for which in ("stdout", "stderr")}
        self.write(place + "/done", {"exit": 0, "reason": "", "seconds": time.monotonic() - began, "ended": time.time(), **sizes})

    def write(self, path, value):
        with open(path + ".new", "w", encoding="ascii") as f:
            json.dump(value, f)
        os.rename(path + ".new", path)

    def cell(self, request, answer):
        if request["artifacts"]:
            try:
                os.mkdir(request["artifacts"])
            except OSError:
                pass  # it is there, or something else of that name
        before = {name: os.environ.get(name) for name in request["env"]}
        os.environ.update(request["env"])
        try:
            if request["arguments"] is None:
                self.evaluate(request["code"])
            else:
                answer["main"] = self.call(json.loads(request["arguments"]), request["limit"])
        finally:
            for name, value in before.items():
                if os.environ.get(name) != request["env"][name]:
                    continue  # the code has changed it
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def evaluate(self, code):
        self.count += 1
        filename = "<cell %d>" % self.count
        linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)
        linecache.cache.pop("<cell %d>" % (self.count - MAX_SOURCES), None)
        tree = ast.parse(code, filename)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        self.compiled(tree, filename, "exec")
        if last is not None:
            value = self.compiled(last, filename, "eval")
            if value is not None:
                self.show(value, True)

    def compiled(self, tree, filename, mode):
        program = compile(tree, filename, mode, self.flags, dont_inherit=True)
        value = eval(program, self.module.__dict__)
        return self.wait(value) if program.co_flags & inspect.CO_COROUTINE else value

    def call(self, arguments, limit):
        main = self.module.__dict__.get("main")
        if not callable(main):
            raise NameError("arguments were given, so the code must define a function main")
        value = main(**arguments)
        if inspect.isawaitable(value):
            value = self.wait(value)
        return express(value, limit).decode()

    def wait(self, awaitable):
        """The value of something to await, in the event loop of the interpreter."""
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

        async def wait():
            return await awaitable

        task = self.loop.create_task(wait())
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted: it shall not go on in the next cell
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def show(self, value, main):
        shown = {}
        for mime, data in forms(value).items():
            if data is None:
                continue
            data = encode(data)
            if len(data) > MOST_SHOWN:
                print("a value of %d bytes is too large to be shown as %s" % (len(data), mime), file=sys.stderr)
                continue
            shown[str(mime)] = base64.b64encode(data).decode()
        self.values.append({"main": main, "forms": shown})

    def figures(self):
        """The figures of matplotlib that the code has left open."""
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is None:
            return
        for number in plots.get_fignums():
            picture = io.BytesIO()
            plots.figure(number).savefig(picture, format="png", bbox_inches="tight")
            self.values.append({"main": False, "forms": {"image/png": base64.b64encode(picture.getvalue()).decode()}})
        plots.close("all")


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), encoding="ascii")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    kernel = Kernel()
    for line in requests:
        kernel.run(line.strip())
    os._exit(0)


main()
