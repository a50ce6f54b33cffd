# must: children that nobody waits for are no burden to the next execution
# status: succeeded
# stdout: made True
made = 0
try:
    for made in range(50):
        if os.fork() == 0:
            os._exit(0)
except OSError:
    pass
print("made", made == 49)
# --- next execution
# status: succeeded
# stdout: made True
made = 0
try:
    for made in range(50):
        if os.fork() == 0:
            os._exit(0)
except OSError:
    pass
print("made", made == 49)
