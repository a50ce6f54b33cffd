# must: the interpreter that waits for the next execution is not to be seen
# status: succeeded
# stdout: seen \[1\]
time.sleep(0.3)  # the next one is started a moment after this one was taken
print("seen", sorted(int(n) for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()))
