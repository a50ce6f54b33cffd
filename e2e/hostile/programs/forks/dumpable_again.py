# must: code that makes itself dumpable, or not, gets at no process but its own
# status: succeeded
# stdout: dumpable 1\nmemory (EACCES|EPERM|ENOENT)\ntrace (EPERM|EACCES|ESRCH)\nread (EPERM|EACCES|ESRCH|ENOSYS|EFAULT)\nhidden 0\nown memory (EACCES|EPERM|SUCCEEDED)
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
PR_GET_DUMPABLE, PR_SET_DUMPABLE, PTRACE_ATTACH = 3, 4, 16

libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
print("dumpable", libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
attempt("memory", open, "/proc/1/mem", "rb")
attempt("trace", syscall, "ptrace", PTRACE_ATTACH, 1, 0, 0)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


own = ctypes.create_string_buffer(16)
here = Piece(ctypes.cast(own, ctypes.c_void_p), 16)
there = Piece(id(None), 16)  # mapped at the same place in every fork of the server
attempt("read", syscall, "process_vm_readv", 1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
print("hidden", libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), flush=True)
attempt("own memory", open, "/proc/self/mem", "rb")
