# must: what main prints is not what it returns
# status: succeeded
# stdout: \{"forged": true\}
# result: {"honest": true}
# arguments: {}
def main():
    print('{"forged": true}')
    return {"honest": True}
