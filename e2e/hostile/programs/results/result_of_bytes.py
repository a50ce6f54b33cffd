# must: a forged result that is no text is shown as such
# status: succeeded
# stdout: ()
# result: "�"
# arguments: {}
def main():
    os.write(4, b'{"kind": "value", "length": 3}\n"\xff"')
    os._exit(0)
