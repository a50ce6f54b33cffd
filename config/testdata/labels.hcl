log "x" {}

provider {}

provider "Full" {}

provider "a" "b" {}

tenant "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
