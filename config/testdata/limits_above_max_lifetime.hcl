limits {
  default_ttl  = "2h"
  max_lifetime = "1h"
  max_idle     = 3601
}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
