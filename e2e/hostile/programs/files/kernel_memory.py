# must: the kernel's memory, symbols and log are not to be read
# status: succeeded
# stdout: kcore (ENOENT|EACCES)\nkallsyms (ENOENT|EACCES)\nkmsg (ENOENT|EACCES)\nmem ENOENT\nport ENOENT\niomem (ENOENT|EACCES)
for path in "/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/dev/mem", "/dev/port", "/proc/iomem":
    attempt(os.path.basename(path), open, path, "rb")
