# must: while one session burns all the CPU it has, others are served
# status: succeeded
# stdout: burning
for i in 1 2 3 4 5 6; do while :; do :; done & done
echo burning
hold
# --- meanwhile, elsewhere
# status: succeeded
# stdout: served
echo served
