# must: a loop without end is stopped, and its output so far is kept
# status: timeout
# stdout: so far
# timeout: 1
print("so far", end="")
while True:
    pass
