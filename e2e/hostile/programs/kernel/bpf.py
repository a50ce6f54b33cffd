# must: no program can be loaded into the kernel
# status: succeeded
# stdout: map (ENOSYS|EPERM)\nprogram (ENOSYS|EPERM)
attempt("map", syscall, "bpf", 0, bytes([1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]).ljust(128, b"\0"), 128)
attempt("program", syscall, "bpf", 5, bytes(128), 128)
