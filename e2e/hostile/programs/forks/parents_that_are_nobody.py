# must: the parent, which is the fork server, has no number by which it can be reached
# status: succeeded
# stdout: parent 0\nread (ESRCH|EINVAL|EPERM|ENOENT)\nwrite (ESRCH|EINVAL|EPERM)\nattach (ESRCH|EPERM|EINVAL)\npidfd EINVAL\nmem ENOENT\nlimit \(1024, 1024\)
import ctypes
import resource

buffer = ctypes.create_string_buffer(64)
local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
remote = (ctypes.c_void_p * 2)(id(0), 64)
parent = os.getppid()
print("parent", parent)
attempt("read", syscall, "process_vm_readv", parent, local, 1, remote, 1, 0)
attempt("write", syscall, "process_vm_writev", parent, local, 1, remote, 1, 0)
attempt("attach", syscall, "ptrace", 16, parent, 0, 0)
attempt("pidfd", os.pidfd_open, parent)
attempt("mem", open, f"/proc/{parent}/mem")
print("limit", resource.prlimit(parent, resource.RLIMIT_NOFILE))  # of oneself
