# must: segments, semaphores and queues of System V and POSIX end with their one-shot, attached, marked or not
# status: succeeded
# stdout: seed -?\d+
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for key in range(100, 110):
    ident = libc.shmget(key, 65536, 0o1666)
    libc.shmat(ident, None, 0)
    libc.semget(key, 4, 0o1666)
    libc.msgget(key, 0o1666)
open("/dev/shm/sem.left", "w").close()
open("/dev/shm/psm_left", "w").close()
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
import ctypes

print(sandbox())
libc = ctypes.CDLL(None, use_errno=True)
left = [f"{f.__name__} {key}" for key in range(100, 110) for f in (lambda k: libc.shmget(k, 0, 0), lambda k: libc.semget(k, 0, 0)) if f(key) >= 0]
found(" ".join(left + os.listdir("/dev/shm")))
