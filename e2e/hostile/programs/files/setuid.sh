# must: a setuid program gives no other user
# status: succeeded
# stdout: owner 1000\nown 1000 1000\nmount .+\nsu .+\nid 1000
cp /bin/bash /tmp/hostile-bash
chmod 6777 /tmp/hostile-bash
echo owner $(stat -c %u /tmp/hostile-bash)
echo own $(/tmp/hostile-bash -p -c 'echo $UID $EUID')
rm /tmp/hostile-bash
# Those of the system, where it has any, find themselves without root too.
attempt mount timeout 2 mount -t tmpfs tmpfs /tmp
attempt su timeout 2 su -c id </dev/null
echo id $(id -u)
