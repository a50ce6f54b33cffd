# must: no clock goes backwards in a copy, and each goes on
# status: succeeded
# stdout: [0-9. ]+
print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
# --- in a copy
# status: succeeded
# stdout: \[True, True, True\] True
before = [float(t) for t in os.environ["PLANTED"].split()]
now = [time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
time.sleep(0.05)
print([a > b for a, b in zip(now, before)], time.monotonic() - now[1] >= 0.05)
