# must: no file can be put beside the runner, over it or into the byte code of modules
# status: succeeded
# stdout: ((new|over|link|move|mode|mount|pycache|module|path|preload) (EACCES|EROFS|EPERM|EEXIST|ENOENT|EXDEV|EBUSY)\n?)+
def put(path):
    with open(path, "w") as f:
        f.write("import os; print('poisoned')")


attempt("new", put, "/run/sandbox/new.py")
for name in "runner.py", "fork_server.py", "context.py", "display.py", "returned.py", "namespaces.bpf", "code_policy.json":
    attempt("over", put, "/run/sandbox/" + name)
attempt("link", os.symlink, "/workspace/x", "/run/sandbox/link.py")
attempt("move", os.rename, "/run/sandbox/runner.py", "/run/sandbox/old.py")
attempt("mode", os.chmod, "/run/sandbox", 0o777)
attempt("mount", syscall, "mount", b"/workspace", b"/run/sandbox", 0, 4096, 0)
attempt("mount", syscall, "umount2", b"/run/sandbox", 2)
attempt("pycache", put, os.path.join(os.path.dirname(os.__file__), "__pycache__", "os.cpython-311.pyc"))
attempt("pycache", os.mkdir, "/run/sandbox/__pycache__")
attempt("module", put, os.path.join(os.path.dirname(os.__file__), "sitecustomize.py"))
attempt("path", put, "/usr/local/lib/python3.11/dist-packages/poisoned.pth")
attempt("preload", put, "/etc/ld.so.preload")
