provider "full" {
  plugin = "../evil"
  sha256 = "abc"
  env    = ["A=B", "OK", "1X"]
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
