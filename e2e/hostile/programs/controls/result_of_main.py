# must: what main returns is the result, on the descriptor that forgeries use
# status: succeeded
# stdout: ()
# arguments: {"a": 1}
# result: {"a": 2}
def main(a):
    return {"a": a + 1}
