# must: a file of one's own cannot replace a system file
# status: succeeded
# stdout: passwd (EXDEV|EROFS|EACCES)\npython (EXDEV|EROFS|EACCES)\nrunner (EXDEV|EROFS|EACCES)
open("mine", "w").close()
attempt("passwd", os.rename, "mine", "/etc/passwd")
attempt("python", os.rename, "mine", os.path.realpath(sys.executable))
attempt("runner", os.rename, "mine", "/run/sandbox/runner.py")
os.remove("mine")
