# must: the machine cannot be rebooted, its swap and accounting not touched
# status: succeeded
# stdout: reboot EPERM\nswapon (EPERM|ENOSYS)\nacct (EPERM|ENOSYS)\nquota (EPERM|ENOSYS|ENODEV)\nhangup (EPERM|ENOSYS|SUCCEEDED)
attempt("reboot", syscall, "reboot", 0xFEE1DEAD - (1 << 32), 672274793, 0x1234567, 0)
attempt("swapon", syscall, "swapon", b"/workspace/swap", 0)
attempt("acct", syscall, "acct", b"/workspace/acct")
attempt("quota", syscall, "quotactl", 0x80000700 - (1 << 32), b"/dev/vda", 0, bytes(128))
attempt("hangup", syscall, "vhangup")
