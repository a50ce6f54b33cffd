# must: a failure has no result, whatever was written for one
# status: failed
# exit: 1
# stdout: written
# stderr: (?s).*ValueError: mine
# arguments: {}
def main():
    os.write(4, b'{"forged": true}')
    print("written")
    raise ValueError("mine")
