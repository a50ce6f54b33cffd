# must: variables that steer a loader steer the program alone, not the runner before it
# status: succeeded
# stdout: ran
# env: PYTHONPATH=/nowhere
# env: PYTHONHOME=/nowhere
# env: LD_PRELOAD=/nowhere/x.so
# env: PATH=/nowhere
print("ran")
