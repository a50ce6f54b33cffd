# must: a link in place of the directory of artifacts leads nowhere
# status: succeeded
# stdout: linked
# artifacts: ()
rmdir artifacts
ln -s /etc artifacts
echo linked
