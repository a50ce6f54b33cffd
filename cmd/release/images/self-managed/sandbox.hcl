# The configuration of a broker in a container. Tenants are in files that are mounted below
# conf.d, and so is what else you set.
listen  = "0.0.0.0:9385"
state   = "/var/lib/sandbox-broker"
include = ["conf.d/*.hcl"]

provider "self_managed" {
  pool_size = 4   # sandboxes kept ready
  memory_mb = 512 # of each sandbox
  cpus      = 1   # of each sandbox
}
