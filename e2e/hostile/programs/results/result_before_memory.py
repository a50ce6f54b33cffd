# must: what ran out of memory has no result, whatever was written for one
# status: out_of_memory
# stdout: written
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    print("written", flush=True)
    x = b"x" * (320 << 20)
    time.sleep(1000)
