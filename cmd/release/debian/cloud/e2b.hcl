# Sandboxes of E2B: copy this to /etc/sandbox-broker/conf.d, for root and the group
# sandbox-broker alone to read. The file of the key belongs to root and that group too.
provider "e2b" {
  api_key = file("/etc/sandbox-broker/e2b.key")
  timeout = "10m"
}
