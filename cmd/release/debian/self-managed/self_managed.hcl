# gVisor sandboxes on this machine. conf.d has a link to this file: remove the link to have
# none of them.
provider "self_managed" {
  pool_size = 4   # sandboxes kept ready
  memory_mb = 512 # of each sandbox
  cpus      = 1   # of each sandbox
}
