# must: with chroot and .. one does not climb to the hidden root below the sandbox's
# status: succeeded
# stdout: unshare EPERM\nchroot EPERM\nsame True\ncanary ENOENT
root = os.stat("/")
here = os.open("/", os.O_RDONLY)
attempt("unshare", syscall, "unshare", 0x10000000)
os.makedirs("/tmp/jail", exist_ok=True)
attempt("chroot", os.chroot, "/tmp/jail")
os.fchdir(here)
os.rmdir("/tmp/jail") if os.path.exists("/tmp/jail") else None
for _ in range(100):
    os.chdir("..")
print("same", os.path.samestat(os.stat("."), root))
attempt("canary", open, "." + os.environ["CANARY_FILE"])
