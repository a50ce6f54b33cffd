# must: what one execution is told in variables, the interpreter of the next is not
# status: succeeded
# stdout: set True
# env: PYTHONSTARTUP=/workspace/x.py
# env: LD_PRELOAD=/workspace/x.so
print("set", os.environ.get("LD_PRELOAD") == "/workspace/x.so")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found(os.environ.get("LD_PRELOAD", "") + os.environ.get("PYTHONSTARTUP", ""))
