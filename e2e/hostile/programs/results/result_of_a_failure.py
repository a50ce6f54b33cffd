# must: a failure has no result, whatever was written for one
# status: failed
# exit: 1
# stdout: written
# stderr: (?s).*ValueError: mine
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    print("written")
    raise ValueError("mine")
