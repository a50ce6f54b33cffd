limits {
  max_lifetime = "1m"
}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
