# Runs one piece of code in a fresh interpreter. Started ahead by the guest as an
# unprivileged user: reads one JSON request from descriptor 3 and reports main's
# return value as JSON on descriptor 4. Standard output and error belong to the
# code alone.
import ast
import atexit
import gc
import io
import json
import linecache
import os
import sys
import traceback
import types

# What most programs import, loaded before anybody waits for it.
import collections, datetime, functools, inspect, itertools, math, random, re, time  # noqa: E401,F401

WORKSPACE = "/workspace"
FILENAME = WORKSPACE + "/main.py"
STANDARD_PATH = list(sys.path)


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


def encode(value, limit):
    try:
        try:
            data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:  # lone surrogates have no UTF-8 form
            data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError(f"main must return something that JSON can express: {e}") from None
    if len(data) > limit:
        raise ValueError(f"main returned {len(data)} bytes of JSON, more than the limit of {limit}")
    return data


def report(exc):
    """Show an exception as the interpreter would, without the runner's frames."""
    seen = set()
    e = exc
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        tb = e.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == __file__:
                e.__traceback__ = tb.tb_next
            tb = tb.tb_next
        if isinstance(e, SyntaxError) and e.filename == FILENAME and e.text is None:
            e.text = linecache.getline(FILENAME, e.lineno)
        e = e.__cause__ or e.__context__
    if sys.excepthook is sys.__excepthook__:
        # Unlike the built-in hook it knows linecache.
        traceback.print_exception(exc, file=sys.stderr or sys.__stderr__)
    else:
        sys.excepthook(type(exc), exc, exc.__traceback__)


def load_policy():
    """The code policy, or None where there is none."""
    directory = os.path.dirname(__file__)
    try:
        with open(os.path.join(directory, "code_policy.json"), "rb") as f:
            rules = json.load(f)
    except FileNotFoundError:
        return None
    sys.path.insert(0, directory)
    import code_policy

    sys.path.remove(directory)
    del sys.modules["code_policy"]  # it is nothing that code can import
    return code_policy.Policy(rules)


def permitted(policy, tree, program, code, channel):
    """Tell the guest what the code policy says, and whether the code may run. What
    comes through the channel later is the code's own affair."""
    findings = policy.analyse(tree, program, code)
    blocked = policy.enforce and bool(findings)
    with open(channel, "wb", closefd=False) as out:
        out.write(json.dumps({"findings": findings, "blocked": blocked}).encode() + b"\n")
    return not blocked


def run(request, policy, module, channel):
    code, arguments = request["code"], request["arguments"]
    random.seed()  # this process may be one of many copies
    os.environ.update(request["env"] or {})
    if "TZ" in os.environ:
        time.tzset()
    sys.path.insert(0, WORKSPACE)
    sys.argv = [FILENAME]

    # With arguments the code is a module whose main is called; a __main__ guard
    # shall not call it a second time.
    module.__name__ = "__main__" if arguments is None else "main"
    module.__file__ = FILENAME
    sys.modules[module.__name__] = module
    linecache.cache[FILENAME] = (len(code), None, code.splitlines(keepends=True), FILENAME)

    tree = ast.parse(code, FILENAME)
    call = arguments is not None or expects_call(tree)
    program = compile(tree, FILENAME, "exec", dont_inherit=True)
    if policy is not None and not permitted(policy, tree, program, code, channel):
        return
    if not call:
        os.close(channel)  # a script returns nothing
    exec(program, module.__dict__)
    if call:
        data = encode(call_main(module.__dict__, arguments or {}), request["result_limit"])
        with os.fdopen(channel, "wb") as out:
            out.write(data)


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


def main():
    os.set_inheritable(4, False)
    policy = load_policy()
    gc.collect()
    gc.freeze()
    os.write(4, b"R")
    module = types.ModuleType("__main__")
    code = 0
    try:
        with os.fdopen(3, "rb") as f:
            request = json.load(f)  # fails where arguments nest deeper than Python can
        run(request, policy, module, 4)
    except SystemExit as e:
        code = e.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            print(code, file=sys.stderr or sys.__stderr__)
            code = 1
    except KeyboardInterrupt as e:
        report(e)
        code = 130
    except BaseException as e:
        report(e)
        code = 1
    leave(code & 0xFF, module)


if __name__ == "__main__":  # multiprocessing may import it
    main()
