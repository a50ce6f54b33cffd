# must: a timeout keeps what was printed, without a line end too
# status: timeout
# stdout: one\ntwo
# stderr: three
# timeout: 1
print("one")
print("two", end="")
sys.stderr.write("three")
while True:
    pass
