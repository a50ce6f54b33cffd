# must: bash does not reach the address where clouds keep credentials
# status: succeeded
# stdout: connect Network is unreachable
connect() { exec 3<>/dev/tcp/169.254.169.254/80; }
attempt connect connect
