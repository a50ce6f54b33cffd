"""An interpreter that keeps its state: requests on descriptor 3, answers on 4."""
import ast
import asyncio
import importlib
import inspect
import json
import os
import pickle
import sys
import traceback
import types

requests, answers = os.fdopen(3), os.fdopen(4, "w")
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
sys.path[0] = ""


def run(source, arguments):
    """Returns the result as JSON and the last value as text; None where there is none."""
    tree = ast.parse(source, "cell.py")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell.py", "exec"), module.__dict__)
    value = None
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell.py", "eval"), module.__dict__)
    result = None
    if arguments is not None:
        result = module.main(**arguments)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        result = json.dumps(result, allow_nan=False)
    return result, None if value is None else repr(value)


def keep(path):
    """Writes the variables that can be pickled, and the names of modules."""
    kept, modules = {}, {}
    for name, value in module.__dict__.items():
        if name.startswith("__"):
            continue
        if isinstance(value, types.ModuleType):
            modules[name] = value.__name__
            continue
        try:
            kept[name] = pickle.dumps(value)
        except Exception:
            pass
    with open(path, "wb") as f:
        pickle.dump((kept, modules), f)


def take(path):
    with open(path, "rb") as f:
        kept, modules = pickle.load(f)
    for name, value in kept.items():
        module.__dict__[name] = pickle.loads(value)
    for name, imported in modules.items():
        module.__dict__[name] = importlib.import_module(imported)


for line in requests:
    request = json.loads(line)
    if request.get("keep") or request.get("take"):
        code = 0
        try:
            keep(request["keep"]) if request.get("keep") else take(request["take"])
        except Exception:
            code = 1
        print(json.dumps({"code": code, "result": None, "value": None}), file=answers, flush=True)
        continue
    code, result, value = 0, None, None
    before = {name: os.environ.get(name) for name in request["env"] or {}}
    os.environ.update(request["env"] or {})
    try:
        result, value = run(request["code"], request["arguments"])
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException as e:
        code = 130 if isinstance(e, KeyboardInterrupt) else 1
        traceback.print_exc()
    for name, earlier in before.items():
        if earlier is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = earlier
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(1, request["sentinel"].encode())
    os.write(2, request["sentinel"].encode())
    print(json.dumps({"code": code, "result": result, "value": value}), file=answers, flush=True)
