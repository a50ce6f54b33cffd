# must: the niceness is as before
# status: succeeded
# stdout: planted
os.nice(15)
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found(os.nice(0))
