audit {
  dir           = ""
  include_code  = "yes"
  max_mb        = 0
  keep_days     = -1
  syslog        = "http://127.0.0.1:514"
  webhook       = "https://me:hunter2@example.com/"
}

audit {}

provider "first" {
  plugin = "full"
}

tenant "acme" {
  token_sha256 = ["1111111111111111111111111111111111111111111111111111111111111111"]
}
