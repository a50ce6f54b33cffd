# must: the programs that run the sandbox cannot be overwritten from inside (CVE-2019-5736)
# status: succeeded
# stdout: self (EROFS|EACCES|ETXTBSY)\ninit EACCES\nguest (EROFS|EACCES|ETXTBSY)\nlink SUCCEEDED\nlinked (EROFS|EACCES|ETXTBSY)
attempt("self", os.open, "/proc/self/exe", os.O_WRONLY)
attempt("init", os.open, "/proc/1/exe", os.O_WRONLY)
attempt("guest", os.open, "/opt/sandbox/guest", os.O_WRONLY)
attempt("link", os.symlink, "/proc/self/exe", "/tmp/exe")
attempt("linked", os.open, "/tmp/exe", os.O_WRONLY | os.O_TRUNC)
os.remove("/tmp/exe")
