# Sandboxes of Daytona: copy this to /etc/sandbox-broker/conf.d, for root and the group
# sandbox-broker alone to read. The file of the key belongs to root and that group too.
provider "daytona" {
  api_key = file("/etc/sandbox-broker/daytona.key")
  target  = "eu"
}
