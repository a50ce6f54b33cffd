# must: thousands of timers, watches and queues harm nobody
# status: succeeded
# stdout: timers [0-9]+\nepolls [0-9]+\nevents [0-9]+
import ctypes
import select

timers = epolls = events = 0
try:
    for timers in range(3000):
        syscall("timer_create", 0, 0, ctypes.byref(ctypes.c_int()))
except OSError:
    pass
keep = []
try:
    for epolls in range(400):
        keep.append(select.epoll())
        for e in keep[-50:]:
            if e is not keep[-1]:
                keep[-1].register(e)
except OSError:
    pass
try:
    for events in range(400):
        keep.append(os.eventfd(0))
except OSError:
    pass
print("timers", timers)
print("epolls", epolls)
print("events", events)
