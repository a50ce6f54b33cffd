# must: process 1 of the execution cannot be debugged
# status: succeeded
# stdout: attach EPERM\nseize (EPERM|EIO)\nread EPERM\nwrite EPERM
import ctypes


class IOVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


buffer = ctypes.create_string_buffer(64)
local = IOVec(ctypes.addressof(buffer), 64)
remote = IOVec(0x400000, 64)
attempt("attach", syscall, "ptrace", 16, 1, 0, 0)
attempt("seize", syscall, "ptrace", 0x4206, 1, 0, 0)
attempt("read", syscall, "process_vm_readv", 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
attempt("write", syscall, "process_vm_writev", 1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
