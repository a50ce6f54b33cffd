# must: no module can be loaded or unloaded
# status: succeeded
# stdout: init (ENOSYS|EPERM)\nfinit (ENOSYS|EPERM)\ndelete (ENOSYS|EPERM)\nkexec (ENOSYS|EPERM)
attempt("init", syscall, "init_module", bytes(64), 64, b"")
attempt("finit", syscall, "finit_module", os.open("/etc/passwd", os.O_RDONLY), b"", 0)
attempt("delete", syscall, "delete_module", b"overlay", 0)
attempt("kexec", syscall, "kexec_load", 0, 0, 0, 0)
