provider "full" {
  region    = "mars"
  hostname  = "Box 1"
  api_key   = "hunter2"
  pool_size = 101
  cpus      = 0
  idle      = "25h"
  mounts    = []
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
