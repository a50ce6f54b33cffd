# must: children that keep every stream open do not keep the execution
# status: succeeded
# stdout: done
for i in {1..10}; do (trap '' HUP TERM INT; exec sleep 1000) & done
echo done
