# must: who ends at once has no result, and his own exit code
# status: failed
# exit: 42
# stdout: before
# stderr: ()
# arguments: {}
def main():
    print("before")
    os._exit(42)
