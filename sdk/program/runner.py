# Runs one piece of code as a fresh interpreter would, as the program of a process
# that was started for it. This file is compiled under a name of its own, behind
# returned.py of package returned, and called with the request; it must run on Python 3.8.
import ast
import base64
import collections.abc
import json
import linecache
import os
import sys
import traceback
import types

CHUNK = 2048  # with the marker, a frame is less than a pipe takes at once
STANDARD_PATH = [p for p in sys.path if p]


class Channel:
    """The way to the provider: frames among the output, which it takes out again. They
    go to the standard output of the process, whatever the code does to its own."""

    def __init__(self, marker):
        self.marker = marker
        self.pid = os.getpid()
        self.descriptor = os.dup(1)

    def value(self, data):
        """Tell what main returned."""
        text = base64.b64encode(data).decode()
        parts = [text[at:at + CHUNK] for at in range(0, len(text), CHUNK)]
        for part in parts[:-1]:
            self.frame("+", part)
        self.frame("=", parts[-1])

    def exit(self, code):
        """Tell the exit code, which means that all is told."""
        self.frame("x", code)

    def frame(self, kind, text):
        if os.getpid() == self.pid:  # else the code has forked, and this is the child
            frame = f"{self.marker}{kind}{text};".encode()
            while frame:
                frame = frame[os.write(self.descriptor, frame):]


def uses_main(node):
    return any(isinstance(n, ast.Name) and n.id == "main" for n in ast.walk(node))


def expects_call(tree):
    """Whether top-level code defines main, leaves it alone and has no guard."""
    defined = False
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main":
            defined = True
        elif isinstance(node, ast.If) and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test)):
            return False
        elif uses_main(node):
            return False
    return defined


def call_main(namespace, arguments):
    main = namespace.get("main")
    if not callable(main):
        raise NameError("arguments were given, so the code must define a function main")
    value = main(**arguments)
    if isinstance(value, collections.abc.Awaitable):
        # The workspace comes first on the path by now, and may have a file of any name.
        path, sys.path[:] = list(sys.path), STANDARD_PATH
        import asyncio

        sys.path[:] = path

        async def wait():
            return await value

        value = asyncio.run(wait())
    return value


def report(exc):
    """Show an exception as the interpreter would, without the frames of this file."""
    own = report.__code__.co_filename
    seen = set()
    e = exc
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        tb = e.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == own:
                e.__traceback__ = tb.tb_next
            tb = tb.tb_next
        if isinstance(e, SyntaxError) and e.text is None and e.filename in linecache.cache:
            e.text = linecache.getline(e.filename, e.lineno)
        e = e.__cause__ or e.__context__
    if sys.excepthook is sys.__excepthook__:
        # Unlike the built-in hook it knows linecache.
        traceback.print_exception(type(exc), exc, exc.__traceback__, file=sys.stderr or sys.__stderr__)
    else:
        sys.excepthook(type(exc), exc, exc.__traceback__)


def exit_code(e):
    """The exit code of a SystemExit, and what it says."""
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF
    print(e.code, file=sys.stderr or sys.__stderr__)
    return 1


def evaluate(request, channel):
    os.environ.update(request["env"])
    if request["dir"]:
        os.makedirs(request["dir"], exist_ok=True)
        os.chdir(request["dir"])
        try:
            os.mkdir("artifacts")
        except OSError:
            pass  # it is there, or something else of that name
    workspace = os.getcwd()
    filename = os.path.join(workspace, "main.py")
    code = request["code"]
    arguments = None
    if request["arguments"] is not None:
        arguments = json.loads(request["arguments"])  # fails where they nest deeper than Python can
    sys.path.insert(0, workspace)
    sys.argv[:] = [filename]

    # With arguments the code is a module whose main is called; a __main__ guard
    # shall not call it a second time.
    module = types.ModuleType("__main__" if arguments is None else "main")
    module.__file__ = filename
    sys.modules[module.__name__] = module
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)

    tree = compile(code, filename, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    call = arguments is not None or expects_call(tree)
    exec(compile(tree, filename, "exec", dont_inherit=True), module.__dict__)
    if call:
        channel.frame("c", "")
        channel.value(express(call_main(module.__dict__, arguments or {}), request["limit"]))


def outcome(request, channel):
    """Run the code; the result is its exit code."""
    try:
        evaluate(request, channel)
    except SystemExit as e:
        return exit_code(e)
    except KeyboardInterrupt as e:
        report(e)
        return 130
    except BaseException as e:
        report(e)
        return 1
    return 0


def process(request, own):
    """Be the program of this process; own is the file with all this, if any."""
    if own:
        try:
            os.unlink(own)  # it has the marker in it
        except OSError:
            pass
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")
    channel = Channel(request["marker"])
    code = outcome(request, channel)
    channel.exit(code)
    sys.exit(code)


def run(encoded, own=None):
    process(json.loads(base64.b64decode(encoded)), own)
