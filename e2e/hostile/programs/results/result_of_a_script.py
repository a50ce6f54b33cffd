# must: a script calls nothing, so it has no result: the way for one is closed before it runs
# status: succeeded
# stdout: write EBADF\nran
attempt("write", os.write, 4, b'{"forged": true}')
print("ran")
