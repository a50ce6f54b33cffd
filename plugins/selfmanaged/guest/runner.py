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
import types

# What most programs import, loaded before anybody waits for it.
import _thread, collections, datetime, functools, inspect, itertools, math, random, re, time, weakref  # noqa: E401,F401

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


def without_runner(exc):
    """Take the runner's frames from an exception, and from what led to it."""
    seen = set()
    e = exc
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        tb = e.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename.startswith(HOME + "/"):
                e.__traceback__ = tb.tb_next
            tb = tb.tb_next
        # The compiler looks for the line in a file.
        if isinstance(e, SyntaxError) and e.text is None and e.__traceback__ is None and e.filename in remembered:
            e.text = linecache.getline(e.filename, e.lineno)
        e = e.__cause__ or e.__context__


def source_file(filename):
    """A descriptor for what was remembered."""
    fd = os.memfd_create("source")
    os.write(fd, "".join(linecache.getlines(filename)).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def show(exc):
    """Show an exception as the interpreter does. It looks for lines in files, and by
    io.open."""

    def source(file, *args, **kwargs):
        if file not in remembered:
            return opened(file, *args, **kwargs)
        return opened(source_file(file), *args, **kwargs)

    opened, io.open = io.open, source
    stderr = getattr(sys, "stderr", None)
    try:
        if stderr is None:
            sys.stderr = sys.__stderr__
        sys.__excepthook__(type(exc), exc, exc.__traceback__)
    finally:
        io.open = opened
        if stderr is None:
            sys.stderr = None


def report(exc):
    """Tell of an exception that nobody has caught as the interpreter would. The result
    is the exit code."""
    without_runner(exc)
    sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, exc.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = exc
    code = 130 if type(exc) is KeyboardInterrupt else 1
    stderr = getattr(sys, "stderr", None) or sys.__stderr__
    try:
        hook = sys.excepthook
    except AttributeError:
        stderr.write("sys.excepthook is missing\n")
        hook = sys.__excepthook__
    if hook is sys.__excepthook__:
        show(exc)
        return code
    try:
        hook(type(exc), exc, exc.__traceback__)
    except SystemExit as e:
        return exit_code(e)
    except BaseException as e:
        without_runner(e)
        stderr.write("Error in sys.excepthook:\n")
        show(e)
        stderr.write("\nOriginal exception was:\n")
        show(exc)
    return code


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
        channel.send("inspection", call=call)
        return True
    findings = policy.analyse(tree, program, code)
    blocked = policy.enforce and bool(findings)
    channel.send("inspection", json.dumps({"findings": findings, "blocked": blocked}).encode(), call=call)
    return not blocked


remembered = set()  # files that are none


def remember(filename, code):
    """Let tracebacks and inspect find the source."""
    remembered.add(filename)
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


class Spawned:
    """Gives the processes that multiprocessing spawns the program, which is no file."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "multiprocessing.spawn" or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        finders = (f.find_spec(name, path, target) for f in list(sys.meta_path))
        spec = next((s for s in finders if s is not None), None)
        if spec is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (load(module), cls.change(module))
        return spec

    @classmethod
    def change(cls, spawn):
        prepare, fd = spawn.get_preparation_data, None

        def get_preparation_data(name):
            nonlocal fd
            data = prepare(name)
            if data.get("init_main_from_path") == FILENAME and not os.path.exists(FILENAME):
                if fd is None:
                    fd = source_file(FILENAME)
                data["init_main_from_path"] = f"/proc/{os.getpid()}/fd/{fd}"
            return data

        spawn.get_preparation_data = get_preparation_data


def exit_code(e):
    """The exit code of a SystemExit, and what it says."""
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF if -(1 << 63) <= e.code < 1 << 63 else 0xFF  # as a long of C
    stderr = getattr(sys, "stderr", None) or sys.__stderr__
    for part in e.code, "\n":
        try:
            stderr.write(str(part))
        except BaseException:  # it has no text, or there is nobody left to tell
            pass
    return 1


def ended(exc):
    """The exit code of what has ended with an exception, or without one."""
    try:
        sys.stdout.flush()
    except BaseException:  # it will be told at the end
        pass
    if exc is None:
        return 0
    return exit_code(exc) if isinstance(exc, SystemExit) else report(exc)


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
    module.__loader__ = type(RUNNER.__loader__)(module.__name__, FILENAME)
    if hasattr(RUNNER, "__annotations__"):  # up to Python 3.13
        module.__annotations__ = {}
    module.__builtins__ = builtins
    module.__file__ = FILENAME
    module.__cached__ = None
    sys.modules[module.__name__] = module
    sys.meta_path.insert(0, Spawned)
    remember(FILENAME, code)

    tree = compile(code, FILENAME, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
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


# The code may replace them.
exit_now, run_exit_functions, collect, get_objects = os._exit, atexit._run_exitfuncs, gc.collect, gc.get_objects


def flush_standard():
    """Flush the standard streams as the interpreter does at its end. The result is
    whether it could."""
    flushed = True
    for name in "stdout", "stderr":
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException as e:
            flushed = False
            if name == "stdout":
                ignore(e, stream)
    return flushed


def ignore(exc, by):
    """Tell of an exception that cannot be raised."""
    without_runner(exc)
    try:
        if sys.unraisablehook is sys.__unraisablehook__:
            sys.stderr.write(f"Exception ignored in: {by!r}\n")
            show(exc)
        else:
            sys.unraisablehook(
                types.SimpleNamespace(
                    exc_type=type(exc), exc_value=exc, exc_traceback=exc.__traceback__, err_msg=None, object=by
                )
            )
    except BaseException:  # there is nobody left to tell
        pass


def write_out():
    for o in [*get_objects(), sys.__stdout__, sys.__stderr__]:
        if issubclass(type(o), io.IOBase):
            try:
                o.flush()
            except BaseException:  # closed, or it cannot be helped
                pass


class Life:
    """Is in the namespace of a module, and ends with it."""

    def __init__(self, namespace):
        self.namespace = namespace


def forget(modules):
    """Let the code's own globals die, in which finalizers still see one another, and what
    hung together in cycles, of which only the code's own are looked at."""
    if gc.isenabled():
        collect()
    module = modules.pop()
    sys.modules.pop(module.__dict__.get("__name__"), None)
    sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None
    module.__dict__["__life__"] = Life(module.__dict__)
    life = weakref.ref(module.__dict__["__life__"])
    del module
    collect()
    if life() is not None:  # somebody else still has some of it
        life().namespace.clear()
        collect()


def leave(code, modules):
    """End as the interpreter would, but without taking apart what is only memory,
    which takes longer in a sandbox than most programs run."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    run_exit_functions()
    sys.settrace(None)
    sys.setprofile(None)
    if not flush_standard():
        code = 120
    # Files that nobody closed are written out; objects with finalizers get their turn.
    write_out()
    forget(modules)
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
    modules = [types.ModuleType("__main__")]
    end = None
    try:
        with os.fdopen(3, "rb") as f:
            request = json.loads(f.readline())  # fails where arguments nest deeper than Python can
            if "context" in request:
                part("context").serve(request["context"], f, policy, modules[0], channel, displays)
        run(request, policy, modules[0], channel, displays)
    except BaseException as e:
        end = e
    # Hooks of the code shall not see that an exception is handled.
    code = ended(end)
    end = None
    try:
        displays.figures()
    except BaseException as e:
        report(e)
    leave(code, modules)


if __name__ == "__main__":  # multiprocessing may import it
    main()
