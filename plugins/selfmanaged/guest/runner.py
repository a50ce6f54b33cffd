# Runs one piece of code in a fresh interpreter, or becomes a context. Started ahead
# by the guest as an unprivileged user: reads a line of JSON, the request, from
# descriptor 3 and reports on descriptor 4, as the guest's package frames describes
# it. Standard output and error belong to the code alone.
import ast
import atexit
import builtins
import gc
import io
import json
import linecache
import os
import sys
import traceback
import types

# What most programs import, loaded before anybody waits for it.
import _thread, collections, datetime, functools, inspect, itertools, math, random, re, time  # noqa: E401,F401

HOME = os.path.dirname(__file__)
WORKSPACE = "/workspace"
FILENAME = WORKSPACE + "/main.py"
MODULES = "/run/sandbox/modules"  # there where code may install
PACKAGES = WORKSPACE + "/.packages/python"  # what was installed for this instance
CHANNEL = 4
STANDARD_PATH = list(sys.path)
RUNNER = sys.modules[__name__]  # where the code's own module will stand


def part(name):
    """A part of the runner that most programs have no use for. It is nothing that
    code can import."""
    module = types.ModuleType(name)
    module.__file__ = f"{HOME}/{name}.py"
    module.runner = RUNNER
    with open(module.__file__) as f:
        source = f.read()
    # The workspace comes first on the path by now, and may have a file of any name.
    path, sys.path = sys.path, STANDARD_PATH
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    sys.path = path
    return module


express = part("returned").express


class Channel:
    """The way to the guest."""

    def __init__(self):
        self.execution = 0
        self.lock = _thread.allocate_lock()
        self.closed = False

    def send(self, kind, data=b"", **header):
        header.update(kind=kind, length=len(data), execution=self.execution)
        frame = memoryview(json.dumps(header).encode() + b"\n" + data)
        with self.lock:
            while frame and not self.closed:
                frame = frame[os.write(CHANNEL, frame):]

    def close(self):
        with self.lock:
            self.closed = True
            os.close(CHANNEL)


class Displays:
    """What the code shows beside its output. The work is done elsewhere, and loaded
    when there is some."""

    def __init__(self, channel):
        self.channel = channel
        self.limits = None
        self.worker = None
        self.watching = False  # for matplotlib

    def begin(self, limits):
        """An execution begins, which may send artifacts up to limits, or none."""
        if self.worker is not None:
            self.worker.begin(limits)
        self.limits = limits
        builtins.display = self.display
        if not self.watching:
            self.watching = True
            sys.meta_path.insert(0, self)

    def work(self):
        if self.worker is None:
            self.worker = part("display").Worker(self.channel)
            self.worker.begin(self.limits)
        return self.worker

    def display(self, *values, raw=False):
        """Show values in the richest forms that they have."""
        for value in values:
            self.work().display(value, raw)

    def result(self, value):
        self.work().result(value)

    def figures(self):
        """Show and close the figures that are open, if there can be any."""
        if "matplotlib.pyplot" in sys.modules:
            self.work().figures()

    def find_spec(self, name, path=None, target=None):
        """Lets pyplot.show show figures, when the time comes."""
        if name == "matplotlib.backends.backend_agg" and self in sys.meta_path:
            sys.meta_path.remove(self)
            return self.work().backend(name)
        return None


def uses_main(node):
    return any(isinstance(n, ast.Name) and n.id == "main" for n in ast.walk(node))


def expects_call(tree):
    """Whether top-level code defines main, leaves it alone and has no guard."""
    defined = False
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main":
            defined = True
            continue
        if isinstance(node, ast.If) and any(
            isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test)
        ):
            return False
        if uses_main(node):
            return False
    return defined


def call_main(namespace, arguments):
    main = namespace.get("main")
    if not callable(main):
        raise NameError("arguments were given, so the code must define a function main")
    value = main(**arguments)
    if inspect.isawaitable(value):
        # The workspace comes first on the path by now, and may have a file of
        # any name.
        path, sys.path = sys.path, STANDARD_PATH
        import asyncio

        sys.path = path

        async def wait():
            return await value

        value = asyncio.run(wait())
    return value


def report(exc):
    """Show an exception as the interpreter would, without the runner's frames."""
    seen = set()
    e = exc
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        tb = e.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename.startswith(HOME + "/"):
                e.__traceback__ = tb.tb_next
            tb = tb.tb_next
        if isinstance(e, SyntaxError) and e.text is None and e.filename in linecache.cache:
            e.text = linecache.getline(e.filename, e.lineno)
        e = e.__cause__ or e.__context__
    if sys.excepthook is sys.__excepthook__:
        # Unlike the built-in hook it knows linecache.
        traceback.print_exception(exc, file=sys.stderr or sys.__stderr__)
    else:
        sys.excepthook(type(exc), exc, exc.__traceback__)


def load_policy():
    """The code policy, or None where there is none."""
    try:
        with open(f"{HOME}/code_policy.json", "rb") as f:
            rules = json.load(f)
    except FileNotFoundError:
        return None
    return part("code_policy").Policy(rules)


def permitted(policy, tree, program, code, call, channel):
    """Tell the guest whether main will be called and what the code policy says. The
    result is whether the code may run. What comes through the channel later is the
    code's own affair."""
    if policy is None:
        channel.send("verdict", call=call)
        return True
    findings = policy.analyse(tree, program, code)
    blocked = policy.enforce and bool(findings)
    channel.send("verdict", json.dumps({"findings": findings, "blocked": blocked}).encode(), call=call)
    return not blocked


def remember(filename, code):
    """Let tracebacks and inspect find the source."""
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)


def find_packages():
    """Let the code import what was installed for this instance. That replaces no
    module of the standard library, but what the system has beside that: who asks for
    a version gets it."""
    if PACKAGES in sys.path:
        return
    if os.path.isdir(PACKAGES):
        before = (i for i, p in enumerate(sys.path) if str(p).endswith("-packages"))
        sys.path.insert(next(before, len(sys.path)), PACKAGES)
    elif os.path.isdir(MODULES) and Later not in sys.meta_path:
        sys.meta_path.append(Later)


class Later:
    """Finds what the code itself has installed since it began."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is not None or not os.path.isdir(PACKAGES):
            return None
        sys.meta_path.remove(cls)
        sys.path_importer_cache.pop(PACKAGES, None)
        find_packages()
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def exit_code(e):
    """The exit code of a SystemExit, and what it says."""
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF
    print(e.code, file=sys.stderr or sys.__stderr__)
    return 1


def run(request, policy, module, channel, displays):
    code, arguments = request["code"], request["arguments"]
    random.seed()  # this process may be one of many copies
    os.environ.update(request["env"] or {})
    if "TZ" in os.environ:
        time.tzset()
    find_packages()
    sys.path.insert(0, WORKSPACE)
    sys.argv = [FILENAME]

    # With arguments the code is a module whose main is called; a __main__ guard
    # shall not call it a second time.
    module.__name__ = "__main__" if arguments is None else "main"
    module.__file__ = FILENAME
    sys.modules[module.__name__] = module
    remember(FILENAME, code)

    tree = ast.parse(code, FILENAME)
    call = arguments is not None or expects_call(tree)
    program = compile(tree, FILENAME, "exec", dont_inherit=True)
    if not permitted(policy, tree, program, code, call, channel):
        return
    displays.begin(request["artifacts"])
    exec(program, module.__dict__)
    if call:
        data = express(call_main(module.__dict__, arguments or {}), request["result_limit"])
        displays.figures()
        channel.send("value", data)
        channel.close()  # threads that go on have no say any more


exit_now = os._exit  # the code may replace it


def write_out():
    for o in [*gc.get_objects(), sys.stdout, sys.stderr]:
        if issubclass(type(o), io.IOBase):
            try:
                o.flush()
            except BaseException:  # closed, or it cannot be helped
                pass


def leave(code, module):
    """End as the interpreter would, but without taking apart what is only memory,
    which takes longer in a sandbox than most programs run."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    # Files that nobody closed are written out; objects with finalizers get their
    # turn: the code's own globals die, and what hung together in cycles, of which
    # only the code's own are looked at.
    write_out()
    module.__dict__.clear()
    gc.collect()
    write_out()
    exit_now(code)


def settle():
    """Leave alone what is there before the code comes."""
    gc.collect()
    gc.freeze()


def main():
    policy = load_policy()
    channel = Channel()
    displays = Displays(channel)
    if sys.argv[1:] == ["serve"]:
        part("fork_server").serve()
    else:
        settle()
    os.set_inheritable(3, False)
    os.set_inheritable(CHANNEL, False)
    os.write(CHANNEL, b"R")
    module = types.ModuleType("__main__")
    code = 0
    try:
        with os.fdopen(3, "rb") as f:
            request = json.loads(f.readline())  # fails where arguments nest deeper than Python can
            if "context" in request:
                part("context").serve(request["context"], f, policy, module, channel, displays)
        run(request, policy, module, channel, displays)
    except SystemExit as e:
        code = exit_code(e)
    except KeyboardInterrupt as e:
        report(e)
        code = 130
    except BaseException as e:
        report(e)
        code = 1
    try:
        displays.figures()
    except BaseException as e:
        report(e)
    leave(code, module)


if __name__ == "__main__":  # multiprocessing may import it
    main()
