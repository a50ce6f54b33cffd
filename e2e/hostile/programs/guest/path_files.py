# must: path files, byte code and zip files are not loaded either
# status: succeeded
# stdout: planted
import py_compile

version = "python%d.%d" % sys.version_info[:2]
os.makedirs(f".local/lib/{version}/site-packages", exist_ok=True)
for place in f".local/lib/{version}/site-packages", ".", "/tmp":
    with open(os.path.join(place, "hostile.pth"), "w") as f:
        f.write("import os; os.write(1, b'loaded')\n")
os.makedirs("__pycache__", exist_ok=True)
with open("/tmp/x.py", "w") as f:
    f.write("import os; os.write(1, b'loaded')\n")
for name in "json", "ast", "main":
    py_compile.compile("/tmp/x.py", f"__pycache__/{name}.cpython-{sys.version_info[0]}{sys.version_info[1]}.pyc")
with open("pyvenv.cfg", "w") as f:
    f.write("home = /tmp\ninclude-system-site-packages = true\n")
print("planted")
time.sleep(0.5)
# --- next execution
# status: succeeded
# stdout: ran
import json  # noqa: F401

print("ran")
