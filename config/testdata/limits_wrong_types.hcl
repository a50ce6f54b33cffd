limits {
  request_body     = 4194304.5
  output           = "1048576"
  default_timeout  = "30"
  max_timeout      = true
  create_timeout   = ["1s"]
  shutdown_timeout = "a while"
  default_ttl      = "5"
  max_lifetime     = "1d"
  max_idle         = null
}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
