# must: a result before another is none
# status: succeeded
# stdout: ()
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    return {"honest": True}
