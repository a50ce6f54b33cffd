# must: no terminal is left to the next execution
# status: succeeded
# stdout: made /dev/pts/[0-9]+
import pty

master, slave = pty.openpty()
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
print("made", os.ttyname(slave), flush=True)
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found(" ".join(n for n in os.listdir("/dev/pts") if n != "ptmx"))
