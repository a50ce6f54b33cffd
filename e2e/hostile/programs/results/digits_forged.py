# must: a forged number of thousands of digits breaks no client
# status: failed
# exit: 1
# stdout: ()
# stderr: ()
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 5000}\n' + b"9" * 5000)
    os._exit(0)
