# must: the directories that hold user files cannot be replaced
# status: succeeded
# stdout: rename (EXDEV|EACCES|EBUSY)\nremove (EACCES|EBUSY)\nchmod EPERM\ntmp (EXDEV|EACCES|EBUSY)
attempt("rename", os.rename, "/workspace", "/tmp/workspace")
attempt("remove", os.rmdir, "/workspace")
attempt("chmod", os.chmod, "/workspace", 0)
attempt("tmp", os.rename, "/tmp", "/workspace/tmp")
