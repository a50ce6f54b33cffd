# What programs in the sandbox find in the place of pip, where packages may be installed.
# The sandbox has no network: `pip install` asks for what is named, as the requirements
# of an execution do. Everything else is pip's own.
import json
import os
import re
import socket
import sys

SOCKET = "/run/sandbox/packages.sock"
PACKAGES = "/workspace/.packages/python"
# Options that change nothing here, by whether a value follows.
IGNORED = {
    "-q": 0, "-qq": 0, "-qqq": 0, "--quiet": 0, "-v": 0, "--verbose": 0, "-U": 0, "--upgrade": 0, "--user": 0, "--no-cache-dir": 0,
    "--no-input": 0, "--no-color": 0, "--disable-pip-version-check": 0, "--break-system-packages": 0, "--prefer-binary": 0,
    "--no-warn-script-location": 0, "-I": 0, "--ignore-installed": 0, "--force-reinstall": 0, "-y": 0, "--no-python-version-warning": 0,
    "--progress-bar": 1, "--root-user-action": 1, "--timeout": 1, "--retries": 1, "--upgrade-strategy": 1, "--default-timeout": 1,
}


def main(arguments):
    rest = list(arguments)
    before = []
    while rest and rest[0] in IGNORED:
        before.append(rest.pop(0))
    if rest[:1] != ["install"] or {"-h", "--help"} & set(rest):
        own(arguments)
    quiet = any(a.startswith("-q") or a == "--quiet" for a in arguments)
    requirements = parse(rest[1:])
    if not requirements:
        refuse('You must give at least one requirement to install (see "pip help install")')
    answer = ask(requirements)
    if not quiet:
        sys.stdout.write(answer["stdout"])
    sys.stderr.write(answer["stderr"])
    sys.stdout.flush()
    sys.exit(answer["exit_code"])


def parse(arguments):
    requirements = []
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if name in ("-r", "--requirement") or argument.startswith("-r") and name not in IGNORED:
            file = value or argument[2:] if argument.startswith("-r") and argument != "-r" or equals else arguments and arguments.pop(0)
            requirements += read(file)
        elif argument == "--":
            requirements += arguments
            break
        elif not argument.startswith("-"):
            requirements.append(argument)
        elif name in IGNORED:
            if IGNORED[name] and not equals and arguments:
                arguments.pop(0)
        else:
            refuse(f"here pip install takes names of packages, with versions maybe, and -r FILE; {argument} is not taken")
    return requirements


def read(file):
    """The requirements in a file."""
    try:
        with open(file, encoding="utf-8") as f:
            text = f.read()
    except (OSError, TypeError, ValueError) as e:
        refuse(f"Could not open requirements file: {e}")
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.replace("\\\n", "").split("\n"))
    return [line for line in lines if line]


def ask(requirements):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(SOCKET)
            s.sendall(json.dumps({"requirements": requirements}).encode() + b"\n")
            with s.makefile("rb") as f:
                return json.loads(f.readline())
    except (OSError, ValueError) as e:
        refuse(f"packages cannot be installed now: {e}")


def refuse(why):
    print(f"ERROR: {why}", file=sys.stderr)
    sys.exit(2)


def own(arguments):
    """Become pip."""
    code = f"import runpy, sys; sys.path.insert(0, {PACKAGES!r}); sys.argv[0] = 'pip'; runpy.run_module('pip', run_name='__main__', alter_sys=True)"
    os.execv(sys.executable, [sys.executable, "-I", "-c", code, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
