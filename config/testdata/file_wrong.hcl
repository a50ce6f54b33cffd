provider "full" {
  api_key  = file("")
  region   = file("secrets")
  hostname = file("/dev/null")
  mounts   = [file("secrets/not_utf8"), file("secrets/too_large")]
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
