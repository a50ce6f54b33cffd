# must: a terminal that another execution has made can be neither read nor written
# status: succeeded
# stdout: holds /dev/pts/[0-9]+
import pty

master, slave = pty.openpty()
os.write(slave, b"password")
hold()
print("holds", os.ttyname(slave))
# --- meanwhile
# status: succeeded
# stdout: clean
# control: together
found(" ".join(n for n in os.listdir("/dev/pts") if n != "ptmx"))
