# must: a fault is told by its number: SIGSEGV
# status: failed
# exit: 139
# stdout: before
# stderr: ()
import ctypes

print("before", flush=True)
ctypes.string_at(0)
