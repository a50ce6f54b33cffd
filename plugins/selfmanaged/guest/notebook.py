# What notebooks have in Python contexts beyond Python: commands of the shell
# (!command, names = !command) and magics (%cd, %%bash). It is loaded when code needs
# it. The name runner is that of runner.py.
import ast
import builtins
import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

# A line that is no Python, as IPython writes it.
LINE = re.compile(r"^(?P<indent>\s*)(?P<target>[A-Za-z_][\w.,\s\[\]'\"]*=\s*)?(?P<kind>!!|!|%(?!%))(?P<rest>.*)$")
CELL = re.compile(r"^\s*%%(?P<name>[!\w]+)[ \t]*(?P<line>[^\n]*)\n?(?P<body>.*)$", re.DOTALL)
HELP = re.compile(r"^\s*\?{0,2}(?P<name>[A-Za-z_][\w.]*)\?{0,2}\s*$")
MAX_LINES = 1000

# What the code policy sees of a line: it has rules for these functions, and none for
# magics. The tuple gives the second.
SHELL = '(__import__("os").system, get_ipython().{})[1]'
CODE = "(eval, get_ipython().{})[1]"


def parse(code, filename):
    """The tree of a cell that Python alone does not take, or None if it is no
    notebook's either."""
    source = translate(code, filename)
    return None if source is None else ast.parse(source, filename)


def translate(code, filename):
    """Python for a cell, line by line, or None."""
    cell = CELL.match(code)
    if cell:
        return call("run_cell_magic", cell["name"], cell["name"], cell["line"], cell["body"])
    written = code.split("\n")
    lines = list(written)
    for _ in range(min(len(lines), MAX_LINES) + 1):
        try:
            ast.parse("\n".join(lines), filename)
            return "\n".join(lines)
        except SyntaxError as e:
            # Python itself tells where a statement begins that it does not know.
            at = (e.lineno or 0) - 1
            line = one_line(lines[at]) if 0 <= at < len(lines) else None
            if line is not None:
                lines[at] = line
            elif lines == written:
                return None
            else:  # a mistake in what is Python
                if 0 <= at < len(written):
                    e.text = written[at] + "\n"
                raise
    return None


def one_line(text):
    found = LINE.match(text)
    if found is None:
        asked = HELP.match(text)
        if asked is None or "?" not in text:
            return None
        return f"help({asked['name']})"
    before, rest = found["indent"] + (found["target"] or ""), found["rest"]
    if found["kind"] == "%":
        name, _, line = rest.strip().partition(" ")
        return before + call("run_line_magic", name, name, line.strip())
    method = "getoutput" if found["target"] or found["kind"] == "!!" else "system"
    return before + SHELL.format(method) + f"({rest.strip()!r})"


def call(method, name, *arguments):
    form = CODE if name in RUNS_CODE else SHELL if name in RUNS_SHELL else "get_ipython().{}"
    return f"{form.format(method)}({', '.join(map(repr, arguments))})"


RUNS_CODE = {"time", "timeit", "capture", "run", "prun", "python", "python3"}
FILES = {"ls", "ll", "cat", "mkdir", "rmdir", "rm", "cp", "mv", "less", "more", "man"}
RUNS_SHELL = {"!", "sx", "system", "bash", "sh", "script", "pip", *FILES}


class UsageError(Exception):
    """A magic that is not known, or not so."""

    __module__ = "builtins"


class Lines(list):
    """What a command printed, as IPython's SList has it."""

    @property
    def n(self):
        return "\n".join(self)

    nlstr = n

    @property
    def s(self):
        return " ".join(self)

    spstr = s
    l = list = property(list)  # noqa: E741


class Notebook:
    """What get_ipython() gives: the part of IPython's shell that cells of notebooks
    call."""

    parse = staticmethod(parse)

    def __init__(self, context):
        self.context = context
        self.user_ns = context.module.__dict__

    # Commands of the shell.

    def system(self, command):
        """Run a command; what it prints is output of the code."""
        self.user_ns["_exit_code"] = self.spawn(self.expand(command))

    def getoutput(self, command):
        """Run a command; what it prints is the value."""
        with contextlib.closing(io.BytesIO()) as output:
            self.user_ns["_exit_code"] = self.spawn(self.expand(command), output)
            return Lines(output.getvalue().decode("utf-8", "replace").splitlines())

    def spawn(self, command, output=None, argv=None, text=None):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        process = subprocess.Popen(
            argv or [SH, "-c", command],
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=None if output is None else subprocess.PIPE,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(text)
        except BaseException:  # interrupted, and with it all that the command started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if output is not None:
            output.write(printed)
        return process.returncode

    def expand(self, text):
        """Put {expressions} and $variables of the code into a command. What is none is
        the shell's."""

        def value(found):
            if found["escaped"]:
                return found["escaped"][0]
            if found["name"]:
                return str(self.user_ns[found["name"]]) if found["name"] in self.user_ns else found[0]
            try:
                return str(eval(found["expression"], self.user_ns))
            except Exception:
                return found[0]

        return re.sub(r"(?P<escaped>\$\$|\{\{|\}\})|\$\{[^}]*\}|\$(?P<name>[A-Za-z_]\w*)|\{(?P<expression>[^{}]+)\}", lambda f: value(f) if f.lastgroup else f[0], text)

    # Magics.

    def run_line_magic(self, name, line, _stack_depth=1):
        if name in FILES:
            return self.system(f"{name} {line}")
        return self.magic("line", name)(self.expand(line) if name not in RUNS_CODE else line)

    def run_cell_magic(self, name, line, cell):
        return self.magic("cell", name)(line, cell)

    def magic(self, kind, name):
        found = getattr(self, f"{kind}_{'sx' if name == '!' else name}", None)
        if found is None:
            mark = "%%" if kind == "cell" else "%"
            known = sorted(mark + n[5:] for n in dir(self) if n.startswith(kind + "_"))
            raise UsageError(f"there is no magic {mark}{name} here; there are {', '.join(known)}")
        return found

    def line_cd(self, line):
        directory = os.path.expanduser(line.strip().strip("\"'") or os.environ.get("HOME", runner.WORKSPACE))
        os.chdir(directory)
        print(os.getcwd())

    def line_pwd(self, _):
        return os.getcwd()

    def line_env(self, line):
        name, equals, value = line.partition("=")
        if not equals and " " in line.strip():
            name, _, value = line.strip().partition(" ")
            equals = "="
        name, value = name.strip(), value.strip()
        if equals:
            os.environ[name] = value
            print(f"env: {name}={value}")
            return None
        return os.environ[name] if name else dict(os.environ)

    line_set_env = line_env

    def line_pip(self, line):
        pip = [shutil.which("pip")] if shutil.which("pip") else [sys.executable, "-m", "pip"]
        self.user_ns["_exit_code"] = self.spawn(None, argv=[*pip, *shlex.split(line)])

    def line_sx(self, line):
        return self.getoutput(line)

    def line_system(self, line):
        return self.system(line)

    def line_who(self, _):
        print("   ".join(self.names()) or "Interactive namespace is empty.")

    def line_whos(self, _):
        for name in self.names():
            value = self.user_ns[name]
            print(f"{name:16} {type(value).__name__:12} {repr(value)[:50]}")

    def names(self):
        return sorted(n for n in self.user_ns if not n.startswith("_") and n not in BEFORE)

    def line_run(self, line):
        file, *arguments = shlex.split(line)
        argv, sys.argv = sys.argv, [file, *arguments]
        try:
            with open(file, encoding="utf-8") as f:
                source = f.read()
            runner.remember(file, source)
            exec(compile(source, file, "exec", dont_inherit=True), self.user_ns)
        finally:
            sys.argv = argv

    def line_time(self, line):
        return self.timed(line)

    def cell_time(self, line, cell):
        return self.timed(f"{line}\n{cell}" if line else cell)

    def timed(self, code):
        began, cpu = time.perf_counter(), os.times()
        try:
            return self.evaluate(code)
        finally:
            now = os.times()
            user, system = now.user - cpu.user, now.system - cpu.system
            print(f"CPU times: user {span(user)}, sys: {span(system)}, total: {span(user + system)}")
            print(f"Wall time: {span(time.perf_counter() - began)}")

    def evaluate(self, code):
        """The value of the last expression of code."""
        filename = f"{runner.WORKSPACE}/magic.py"
        tree = self.context.parse(code, filename)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        self.context.evaluate(tree, filename, "exec")
        return None if last is None else self.context.evaluate(last, filename, "eval")

    def line_timeit(self, line):
        options = re.match(r"(-[nr]\s*\d+\s+)*", line)[0]
        self.cell_timeit(options, line[len(options):])

    def cell_timeit(self, line, cell):
        import statistics
        import timeit

        words = shlex.split(line)
        loops = repeats = 0
        while words and words[0][:2] in ("-n", "-r"):
            option = words.pop(0)
            number = int(option[2:] or words.pop(0))
            loops, repeats = (number, repeats) if option[1] == "n" else (loops, number)
        timer = timeit.Timer(cell, setup=" ".join(words) or "pass", globals=self.user_ns)
        repeats = repeats or 7
        if not loops:
            loops, _ = timer.autorange()
        each = [t / loops for t in timer.repeat(repeats, loops)]
        print(f"{span(statistics.mean(each))} ± {span(statistics.pstdev(each))} per loop (mean ± std. dev. of {repeats} runs, {loops:,} loops each)")

    def cell_capture(self, line, cell):
        name = line.strip()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.evaluate(cell)
        if name and not name.startswith("-"):
            self.user_ns[name] = Captured(out.getvalue(), err.getvalue())

    def cell_writefile(self, line, cell):
        words = shlex.split(line)
        append = "-a" in words
        (file,) = (w for w in words if w not in ("-a", "--append"))
        print(("Appending to " if append else "Overwriting " if os.path.exists(file) else "Writing ") + file)
        with open(file, "a" if append else "w", encoding="utf-8") as f:
            f.write(cell)

    cell_file = cell_writefile

    def cell_script(self, line, cell):
        argv = shlex.split(line)
        if not argv:
            raise UsageError("%%script needs a program")
        code = self.spawn(None, argv=argv, text=cell.encode())
        self.user_ns["_exit_code"] = code
        if code:
            raise subprocess.CalledProcessError(code, argv)

    def cell_bash(self, line, cell):
        self.cell_script(f"{SH} -s -- {line}" if line else SH, cell)

    cell_sh = cell_bash

    def cell_sx(self, line, cell):
        return self.getoutput(f"{line}\n{cell}" if line else cell)

    cell_system = cell_sx

    def cell_python(self, line, cell):
        self.cell_script(f"{sys.executable} - {line}", cell)

    cell_python3 = cell_python

    def cell_html(self, _, cell):
        builtins.display({"text/html": cell}, raw=True)

    def cell_markdown(self, _, cell):
        builtins.display({"text/markdown": cell}, raw=True)

    def cell_latex(self, _, cell):
        builtins.display({"text/latex": cell}, raw=True)

    def cell_svg(self, _, cell):
        builtins.display({"image/svg+xml": cell}, raw=True)

    def nothing(self, _):
        """What a notebook needs, and a context has anyway."""

    line_matplotlib = line_load_ext = line_reload_ext = line_autoreload = line_config = line_precision = nothing


class Captured:
    """What a captured cell printed."""

    def __init__(self, stdout, stderr):
        self.stdout, self.stderr = stdout, stderr

    def __str__(self):
        return self.stdout

    def __call__(self):
        self.show()

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)


SH = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
BEFORE = {"get_ipython"}


def span(seconds):
    """A time as people read it."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
