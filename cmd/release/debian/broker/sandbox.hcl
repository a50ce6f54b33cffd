# The configuration of the sandbox broker. What changes here is in force a moment later.
# Check a change before:
#   sandbox-broker check /etc/sandbox-broker/sandbox.hcl

# Where the REST API listens. ListenStream= of sandbox-broker.socket must be the same
# address: systemctl edit sandbox-broker.socket. Give it a tls block, or a proxy with TLS
# in front, before you open it to other machines.
listen = "127.0.0.1:9385"

state      = "/var/lib/sandbox-broker"
plugin_dir = "/usr/lib/sandbox-broker/plugins"

# Providers and tenants, one file each or as you like. The file tokens.hcl was made when the
# package was installed.
include = ["conf.d/*.hcl"]

limits {
  default_timeout = "30s" # of an execution that names none
  max_timeout     = "10m" # that an execution may name
}

audit {
  dir = "/var/log/sandbox-broker/audit"
}
