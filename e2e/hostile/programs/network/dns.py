# must: no name is resolved, so none can carry anything out
# status: succeeded
# stdout: name gaierror|name EAI.*|name -?[0-9]+.*
import socket
import secrets

attempt("name", socket.getaddrinfo, secrets.token_hex(8) + ".example.com", 80)
