# must: files that stand in the way of modules, settings and byte code are gone before the next is forked
# status: succeeded
# stdout: seed -?\d+
names = ["json.py", "decimal.py", "sitecustomize.py", "usercustomize.py", "main.py", ".packages/python/decimal.py", ".local/lib/python3.11/site-packages/x.pth", "__pycache__/decimal.cpython-311.pyc", "pyvenv.cfg", ".pythonrc", "python3"]  # fmt: skip
for place in "/workspace/", "/tmp/", "/dev/shm/":
    for name in names:
        os.makedirs(os.path.dirname(place + name), exist_ok=True)
        open(place + name, "w").write("import builtins; builtins.poisoned = 1; x = 1\n")
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
import builtins
import decimal  # noqa: F401

print(sandbox())
found("poison" if hasattr(builtins, "poisoned") else "")
