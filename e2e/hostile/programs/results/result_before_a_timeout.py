# must: what was stopped at its time limit has no result, whatever was written for one
# status: timeout
# stdout: written
# timeout: 1
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    print("written")
    time.sleep(100)
