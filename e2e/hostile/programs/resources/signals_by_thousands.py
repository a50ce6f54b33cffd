# must: signals that wait are bounded
# status: succeeded
# stdout: sent [0-9]+
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
sent = 0
try:
    while sent < 50000:
        os.kill(os.getpid(), signal.SIGRTMIN)
        sent += 1
except OSError:
    pass
print("sent", sent)
