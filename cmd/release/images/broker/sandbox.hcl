# The configuration of a broker in a container. Providers and tenants are in files that are
# mounted below conf.d, and so is what else you set.
listen  = "0.0.0.0:9385"
state   = "/var/lib/sandbox-broker"
include = ["conf.d/*.hcl"]
