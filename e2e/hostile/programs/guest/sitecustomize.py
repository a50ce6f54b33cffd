# must: a sitecustomize of an earlier execution is not loaded by the next
# status: succeeded
# stdout: works True
import subprocess

os.makedirs(".local/lib/python%d.%d/site-packages" % sys.version_info[:2], exist_ok=True)
for name in "sitecustomize.py", "usercustomize.py":
    for place in ".", "/tmp", os.path.expanduser("~/.local/lib/python%d.%d/site-packages" % sys.version_info[:2]):
        with open(os.path.join(place, name), "w") as f:
            f.write("print('planted')\n")
# An interpreter that was started without care would load it.
said = subprocess.run([sys.executable, "-c", ""], capture_output=True, text=True, env={"PYTHONPATH": "/workspace", "HOME": "/workspace"}).stdout
print("works", "planted" in said)
time.sleep(0.5)
# --- next execution
# status: succeeded
# stdout: loaded False
print("loaded", any("customize" in name and getattr(module, "__file__", "").startswith(("/workspace", "/tmp")) for name, module in sys.modules.items()))
# --- next execution
# status: succeeded
# stdout: loaded False
print("loaded", any("customize" in name and getattr(module, "__file__", "").startswith(("/workspace", "/tmp")) for name, module in sys.modules.items()))
