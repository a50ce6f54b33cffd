# must: there is nothing above the root
# status: succeeded
# stdout: dots ENOENT\nchdir ENOENT\nsame True
dots = "/" + "../" * 100
attempt("dots", open, dots + os.environ["CANARY_FILE"])
os.chdir(dots)
attempt("chdir", open, "." + os.environ["CANARY_FILE"])
print("same", os.path.samestat(os.stat("."), os.stat("/")))
