# must: the runners of the guest and the guest itself cannot be changed
# status: succeeded
# stdout: python (Permission denied|Read-only file system)\nnode (Permission denied|Read-only file system)\nremove .*(Permission denied|Read-only file system)\nmove .*(Permission denied|Read-only file system)\nguest (Permission denied|Read-only file system|Text file busy)\nmode .*(Operation not permitted|Read-only file system)
write() { echo hostile >> "$1"; }
attempt python write /run/sandbox/runner.py
attempt node write /run/sandbox/runner.js
attempt remove rm -f /run/sandbox/runner.py
attempt move mv /run/sandbox /tmp/
attempt guest write /opt/sandbox/guest
attempt mode chmod 777 /run/sandbox/runner.py
