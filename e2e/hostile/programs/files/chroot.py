# must: chroot, the way out of a chroot, is refused
# status: succeeded
# stdout: chroot EPERM
os.makedirs("/tmp/jail", exist_ok=True)
attempt("chroot", os.chroot, "/tmp/jail")
os.rmdir("/tmp/jail")
