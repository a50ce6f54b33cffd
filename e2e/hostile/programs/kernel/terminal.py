# must: there is no terminal of anybody to type into
# status: succeeded
# stdout: controlling (ENXIO|ENOTTY|ENOENT)\npush (EPERM|EIO|ENOTTY|ENXIO)\nothers clean
import fcntl
import pty
import termios

attempt("controlling", os.open, "/dev/tty", os.O_RDWR)
attempt("push", fcntl.ioctl, 0, termios.TIOCSTI, b"x")
others = [n for n in os.listdir("/dev/pts") if n not in ("ptmx",)]
print("others", "found" if others else "clean")
