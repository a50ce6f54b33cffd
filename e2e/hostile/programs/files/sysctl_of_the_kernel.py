# must: no switch of the kernel can be turned, such as the handler of core dumps
# status: succeeded
# stdout: core_pattern (ENOENT|EACCES)\nmodprobe (ENOENT|EACCES)\nsysrq (ENOENT|EACCES)\nbinfmt (ENOENT|EACCES)\nforward (ENOENT|EACCES)\nuevent (ENOENT|EACCES|EPERM)\nothers 0
for name, path in {
    "core_pattern": "/proc/sys/kernel/core_pattern", "modprobe": "/proc/sys/kernel/modprobe", "sysrq": "/proc/sysrq-trigger",
    "binfmt": "/proc/sys/fs/binfmt_misc/register", "forward": "/proc/sys/net/ipv4/ip_forward", "uevent": "/sys/kernel/uevent_helper",
}.items():
    attempt(name, os.open, path, os.O_WRONLY)
others = 0
for top, _, names in os.walk("/proc/sys"):
    for name in names:
        try:
            os.close(os.open(os.path.join(top, name), os.O_WRONLY))
            others += 1
        except OSError:
            pass
print("others", others)
