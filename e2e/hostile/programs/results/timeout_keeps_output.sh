# must: a timeout keeps what bash and its children printed
# status: timeout
# stdout: one\ntwo
# stderr: three
# timeout: 1
echo one
bash -c 'printf two; printf three >&2; sleep 100'
