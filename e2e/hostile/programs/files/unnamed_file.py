# must: a file without a name cannot be given one in /usr
# status: succeeded
# stdout: tmpfile [A-Z]+\nlink (ENOENT|EXDEV|EROFS|EACCES)
fd = os.open("/workspace/f", os.O_CREAT | os.O_RDWR)
attempt("tmpfile", os.open, "/usr/lib", os.O_TMPFILE | os.O_RDWR)
attempt("link", syscall, "linkat", -100, b"/proc/self/fd/%d" % fd, -100, b"/usr/lib/planted", 0x400)
os.remove("/workspace/f")
