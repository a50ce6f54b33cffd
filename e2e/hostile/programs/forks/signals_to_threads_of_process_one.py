# must: no signal reaches process 1 by its thread, by a queue or by its group
# status: succeeded
# stdout: ([a-z]+ \d+ (EPERM|ESRCH|EINVAL)\n?)+
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == "aarch64"


def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), "")


info = (ctypes.c_int * 32)()
for n in 9, 19, 15, 17, 34:
    info[0], info[2] = n, -1  # SI_QUEUE
    attempt(f"tgkill {n}", call, 131 if arm else 234, 1, 1, n)
    attempt(f"tkill {n}", call, 130 if arm else 200, 1, n)
    attempt(f"queue {n}", call, 138 if arm else 129, 1, n, info)
    attempt(f"group {n}", os.killpg, 1, n)
