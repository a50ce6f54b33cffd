# must: who ends at once with 0 has succeeded, but without a result
# status: succeeded
# stdout: before
# arguments: {}
def main():
    print("before")
    os._exit(0)
