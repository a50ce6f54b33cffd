listen  = "127.0.0.1:1"
include = ["included/twice/*.hcl"]

log {}

provider "full" {}

tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
