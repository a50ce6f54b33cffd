tenant "demo" {
  token_sha256 {}
  quota {
    max = 1
  }
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
provider "full" {}
