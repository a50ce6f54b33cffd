# must: a file of the host that everybody there may read and write does not exist
# status: succeeded
# stdout: read ENOENT\nwrite ENOENT\nthrough root ENOENT\nthrough dots ENOENT
path = os.environ["CANARY_FILE"]
attempt("read", open, path)
attempt("write", os.open, path, os.O_WRONLY)
attempt("through root", open, "/proc/self/root" + path)
attempt("through dots", open, "/workspace/" + "../" * 64 + path)
