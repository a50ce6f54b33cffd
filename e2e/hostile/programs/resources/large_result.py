# must: a result above the limit is the code's failure
# status: failed
# exit: 1
# stdout: ()
# stderr: (?s).*more than the limit of 1048576
# arguments: {}
def main():
    return "x" * (4 << 20)
