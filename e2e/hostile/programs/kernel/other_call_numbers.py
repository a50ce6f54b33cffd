# must: calls by the numbers of another ABI, or with dirty upper halves of flags, are no way around the filter
# status: succeeded
# stdout: x32 ENOSYS\nupper half (EPERM|EINVAL)\nfilters 1 (SUCCEEDED|EACCES|EINVAL)
import ctypes

SYSCALLS["x32"] = 0x40000000 | 272, 0x40000000 | 97
attempt("x32", syscall, "x32", 0x10000000)
attempt("upper half", syscall, "unshare", 0x10000000 | 1 << 40)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


# A filter that allows everything adds to the one that is there; it does not take
# its place.
allow = b"\x06\0\0\0\0\0\xff\x7f"
program = Program(1, allow)
try:
    syscall("prctl", 22, 2, ctypes.byref(program), 0, 0)
    outcome = "SUCCEEDED"
except OSError as e:
    outcome = errno.errorcode[e.errno]
try:
    syscall("unshare", 0x10000000)
    print("filters 0", outcome)
except OSError:
    print("filters 1", outcome)
