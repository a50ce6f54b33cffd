# The part of runner.py that runs one piece of code after the other in the same
# interpreter. Code shares the process with it: what it does to this it does to
# itself alone. The name runner is that of runner.py.
import __future__
import ast
import builtins
import gc
import inspect
import json
import linecache
import os
import resource
import signal
import sys
import time

TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURES = 0
for name in __future__.all_feature_names:
    FUTURES |= getattr(__future__, name).compiler_flag
MAX_SOURCES = 1000  # whose lines tracebacks can show
PID = os.getpid()


class Context:
    def __init__(self, policy, module, channel, displays):
        self.policy = policy
        self.module = module
        self.channel = channel
        self.displays = displays
        self.count = 0
        self.flags = TOP_LEVEL_AWAIT
        self.loop = None
        self.notebook = None

    def run(self, request):
        """Run one piece of code; the result is its exit code."""
        try:
            # The code may have set another.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                code = self.cell(request)
            except SystemExit as e:
                code = runner.exit_code(e)
            except KeyboardInterrupt as e:
                runner.report(e)
                code = 130
            except BaseException as e:
                runner.report(e)
                code = 1
            if code != 130:
                self.displays.figures()
        except KeyboardInterrupt:  # it came while something was reported
            code = 130
        except BaseException as e:
            runner.report(e)
            code = 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except BaseException:  # the code replaced or closed it
                pass
        if os.getpid() != PID:  # the code has forked, and this is the child
            os._exit(code)
        return code

    def cell(self, request):
        self.count += 1
        code, arguments = request["code"], request["arguments"]
        filename = f"{runner.WORKSPACE}/cell-{self.count}.py"
        runner.remember(filename, code)
        linecache.cache.pop(f"{runner.WORKSPACE}/cell-{self.count - MAX_SOURCES}.py", None)
        if sys.stdin is None or sys.stdin.closed:  # exit() closes it
            sys.stdin = open(0, closefd=False)

        tree = self.parse(code, filename)
        program = self.policy and compile(tree, filename, "exec", self.flags, dont_inherit=True)
        if not runner.permitted(self.policy, tree, program, code, arguments is not None, self.channel):
            return 126
        runner.find_packages()  # they may have come after the context
        last = None
        if arguments is None and tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        with Environment(request["env"] or {}):
            self.displays.begin(request["artifacts"])
            self.evaluate(tree, filename, "exec")
            if last is not None:
                value = self.evaluate(last, filename, "eval")
                if value is not None:
                    self.displays.result(value)
            if arguments is not None:
                value = self.call_main(arguments)
                self.channel.send("value", runner.express(value, request["result_limit"]))
        return 0

    def parse(self, code, filename):
        """The tree of a cell, which may have what notebooks have beyond Python."""
        try:
            return ast.parse(code, filename)
        except SyntaxError as e:
            if not any(mark in code for mark in "%!?"):
                raise
            if self.notebook is None:
                self.notebook = runner.part("notebook").Notebook(self)
                builtins.get_ipython = lambda: self.notebook
            tree = self.notebook.parse(code, filename)
            if tree is None:
                raise e from None
            return tree

    def evaluate(self, tree, filename, mode):
        program = compile(tree, filename, mode, self.flags, dont_inherit=True)
        self.flags |= program.co_flags & FUTURES
        value = eval(program, self.module.__dict__)
        if program.co_flags & inspect.CO_COROUTINE:
            value = self.wait(value)
        return value

    def call_main(self, arguments):
        main = self.module.__dict__.get("main")
        if not callable(main):
            raise NameError("arguments were given, so the code must define a function main")
        value = main(**arguments)
        if inspect.isawaitable(value):
            value = self.wait(value)
        return value

    def wait(self, awaitable):
        """The value of something to await, in the event loop of the context."""
        path, sys.path = sys.path, runner.STANDARD_PATH
        import asyncio

        sys.path = path
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)

        async def wait():
            return await awaitable

        task = self.loop.create_task(wait())
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted: it shall not go on in the next execution
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            raise


class Environment:
    """Variables for one execution."""

    def __init__(self, variables):
        self.variables = variables
        self.before = {}

    def __enter__(self):
        for name, value in self.variables.items():
            self.before[name] = os.environ.get(name)
            os.environ[name] = value
        self.zone()

    def __exit__(self, *exception):
        for name, value in self.variables.items():
            if os.environ.get(name) != value:
                continue  # the code has changed it
            if self.before[name] is None:
                del os.environ[name]
            else:
                os.environ[name] = self.before[name]
        self.zone()

    def zone(self):
        if "TZ" in self.variables:
            time.tzset()


def serve(setup, requests, policy, module, channel, displays):
    """Become a context, for the rest of the process's life."""
    os.environ.update(setup["env"] or {})
    if "TZ" in os.environ:
        time.tzset()
    problem = ""
    try:
        os.chdir(setup["cwd"])
    except OSError as e:
        problem = e.strerror
    cwd = os.getcwd()
    for directory in {runner.WORKSPACE: 1, cwd: 1}:
        sys.path.insert(0, directory)
    sys.argv = [""]
    runner.random.seed()  # this process may be one of many copies
    for stream in (sys.stdout, sys.stderr):
        # A line at a time: unbuffered, print writes its line end apart.
        stream.reconfigure(write_through=False, line_buffering=True)
    module.__name__ = "__main__"
    sys.modules["__main__"] = module
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context = Context(policy, module, channel, displays)
    gc.collect()
    gc.freeze()
    channel.send("done", refused=problem)
    for line in requests:
        try:
            request = json.loads(line)
        except RecursionError as e:  # arguments that nest deeper than Python can
            channel.execution += 1
            runner.report(e)
            channel.send("done", exit_code=1, peak_bytes=peak())
            continue
        channel.execution = request["execution"]
        del line
        if request.get("renewal"):
            renew(request["renewal"])
        try:
            code = context.run(request)
        except KeyboardInterrupt:  # at the very end
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            code = 130
        channel.send("done", exit_code=code, peak_bytes=peak())
    os._exit(0)


def renew(renewal):
    """Be one of several copies: have their variables, draw other random numbers than they do."""
    for change in (
        lambda: os.environ.update(renewal["env"] or {}),
        time.tzset,
        runner.random.seed,
        lambda: "ssl" in sys.modules and sys.modules["ssl"].RAND_add(os.urandom(32), 32.0),
        lambda: "numpy" in sys.modules and sys.modules["numpy"].random.seed(),
    ):
        try:
            change()
        except BaseException:  # it is the code's by now, or half loaded
            pass


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
