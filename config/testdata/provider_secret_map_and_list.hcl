provider "full" {
  headers = { "hunter2" = 5 }
  tokens  = ["hunter2", 5]
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
