# must: an alarm that was set rings nobody afterwards
# status: succeeded
# stdout: planted
import signal

signal.signal(signal.SIGALRM, lambda *a: rung.append("alarm"))
rung = []
signal.setitimer(signal.ITIMER_REAL, 0.1)
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
time.sleep(0.3)
found(" ".join(globals().get("rung", [])))
