# The broker's configuration in its pod. The broker reads it again when the ConfigMap changes.

listen = "0.0.0.0:9385"
state  = "/var/lib/sandbox-broker/state"

# What components add.
include = ["more-*.hcl"]

providers {
  active  = "kubernetes"
  on_stop = "keep" # the next pod of the broker has the sandboxes again
}

provider "kubernetes" {
  namespace       = "sandboxes"
  service_account = "sandbox"
  image           = "registry.example.com/sandbox-rootfs"
  guest_image     = "registry.example.com/sandbox-guest"
  runtime_class   = "gvisor"
  pool_size       = 2
}

tenant "demo" {
  token_sha256 = [file("/etc/sandbox-broker-secrets/demo")]
}
