# must: the ports of the processor are closed
# status: succeeded
# stdout: refused (ENOSYS|EPERM) (ENOSYS|EPERM)
outcomes = []
for number in (172, 173) if os.uname().machine == "x86_64" else (4000, 4001):  # iopl, ioperm
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    outcomes.append("OPEN" if libc.syscall(ctypes.c_long(number), 3, 1, 1) == 0 else errno.errorcode[ctypes.get_errno()])
print("refused", *outcomes)
