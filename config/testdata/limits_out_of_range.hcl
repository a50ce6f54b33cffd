limits {
  request_body     = 1e400
  output           = 8388609
  default_timeout  = "0s"
  max_timeout      = "25h"
  create_timeout   = -1
  shutdown_timeout = "1h1s"
  default_ttl      = "999ms"
  max_lifetime     = "721h"
  max_idle         = 0
  artifact_count   = 101
  artifact_bytes   = 16777217
  artifact_total   = 1023
}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
