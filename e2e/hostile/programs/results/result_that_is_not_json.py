# must: what is not JSON is no result
# status: succeeded
# stdout: written
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 7}\n{forged')
    print("written", flush=True)
    os._exit(0)
