# must: a system file cannot be linked to where it could be written
# status: succeeded
# stdout: passwd (EXDEV|EPERM|EROFS)\npython (EXDEV|EPERM|EROFS)\nguest (EXDEV|EPERM|EROFS)
attempt("passwd", os.link, "/etc/passwd", "/workspace/passwd")
attempt("python", os.link, os.path.realpath(sys.executable), "/workspace/python")
attempt("guest", os.link, "/opt/sandbox/guest", "/workspace/guest")
