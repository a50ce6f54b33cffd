"""Runs code by the contract: code, arguments ("-" for none) and result are files."""
import ast
import asyncio
import inspect
import json
import sys
import types

code_path, arguments_path, result_path = sys.argv[1:4]
sys.argv = ["main.py"]
sys.path[0] = ""
with open(code_path, encoding="utf-8") as f:
    source = f.read()
tree = ast.parse(source, "main.py")
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
exec(compile(tree, "main.py", "exec"), module.__dict__)

defines = any(isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == "main" for n in tree.body)
calls = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "main" for n in ast.walk(tree))
given = arguments_path != "-"
if given or defines and not calls:
    main = getattr(module, "main", None)
    if not callable(main):
        raise TypeError("there are arguments, and the code defines no main")
    arguments = json.load(open(arguments_path, encoding="utf-8")) if given else {}
    value = main(**arguments)
    if inspect.iscoroutine(value):
        value = asyncio.run(value)
    with open(result_path, "w", encoding="utf-8") as f:
        f.write(json.dumps(value, allow_nan=False))
