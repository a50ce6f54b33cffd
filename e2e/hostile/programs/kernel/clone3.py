# must: clone3, whose flags no filter sees, does not exist
# status: succeeded
# stdout: mount ENOSYS\nuser ENOSYS\nplain ENOSYS
import ctypes


def clone(flags):
    arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, 17)
    if syscall("clone3", ctypes.byref(arguments), 88) == 0:
        os._exit(1)


for name, flags in ("mount", 0x20000), ("user", 0x10000000), ("plain", 0):
    attempt(name, clone, flags)
