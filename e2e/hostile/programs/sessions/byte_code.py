# must: byte code and caches are of one session
# status: succeeded
# stdout: planted
import py_compile

open("/workspace/helper.py", "w").write("x = 'planted'\n")
py_compile.compile("/workspace/helper.py")
print("planted")
# --- another session
# status: succeeded
# stdout: clean
# control: session
try:
    import helper

    found(helper.x)
except ImportError:
    found("")
