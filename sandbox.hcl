# The configuration of the sandbox broker. Check a change before you use it:
#   sandbox-broker check sandbox.hcl

# Where the REST API listens. Give it a tls block, or a proxy with TLS in front,
# before you open it to other machines.
listen = "127.0.0.1:9385"

# Directories are relative to this file.
state      = "./data"
plugin_dir = "./bin/plugins"

limits {
  default_timeout = "30s" # of an execution that names none
  max_timeout     = "10m" # that an execution may name
}

# gVisor sandboxes on this machine.
provider "self_managed" {
  pool_size = 4   # sandboxes kept ready
  memory_mb = 512 # of each sandbox
  cpus      = 1   # of each sandbox
}

# A tenant is who may ask. This one is for trying: its token is demo-token, which
# everybody knows. Replace it by what `sandbox-broker token` prints.
tenant "demo" {
  token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"]
}
