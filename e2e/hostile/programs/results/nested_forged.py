# must: a forged result of thousands of brackets breaks no client
# status: failed
# exit: 1
# stdout: ()
# stderr: ()
# arguments: {}
def main():
    data = b"[" * 9000 + b"]" * 9000
    os.write(4, b'{"kind": "value", "length": %d}\n' % len(data) + data)
    sys.stdout.flush()
    os._exit(0)
