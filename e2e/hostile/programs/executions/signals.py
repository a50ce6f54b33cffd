# must: signals that were ignored or blocked are as before
# status: succeeded
# stdout: planted
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import signal

found(" ".join(["ignored"] * (signal.getsignal(signal.SIGTERM) == signal.SIG_IGN) + ["blocked"] * bool(signal.pthread_sigmask(signal.SIG_BLOCK, set()))))
