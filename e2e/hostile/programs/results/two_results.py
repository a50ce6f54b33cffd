# must: a result before another is none
# status: succeeded
# stdout: ()
# arguments: {}
def main():
    os.write(4, b'{"forged": true}')
    return {"honest": True}
