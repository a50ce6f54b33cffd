# must: who stops and interrupts all that he can stops no fork server
# status: succeeded
# stdout: stopped \[\]
import signal

stopped = []
for pid in [*range(1, 300), -2, -5, -10, -20]:
    if abs(pid) == os.getpid():
        continue
    for n in signal.SIGSTOP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGTSTP, signal.SIGKILL:
        try:
            os.kill(pid, n)
            stopped.append((pid, n))
        except OSError:
            pass
print("stopped", stopped)
# --- next execution
# status: succeeded
# stdout: served
print("served")
