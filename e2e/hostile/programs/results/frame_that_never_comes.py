# must: data that is announced and never comes is not waited for, nor made room for
# status: succeeded
# stdout: an hour of work
# arguments: {}
def main():
    os.write(4, b'{"kind": "display", "mime": "a/b", "group": 1, "length": 4000000}\n')
    print("an hour of work", flush=True)
    os._exit(0)
