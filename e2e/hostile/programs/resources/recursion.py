# must: recursion without end ends the program alone
# status: failed
# exit: 139
# stdout: begun
# stderr: (?s).*
import threading

print("begun", flush=True)
sys.setrecursionlimit(1 << 30)


def deeper(x):
    return [*map(deeper, [x])]


deeper(0)
