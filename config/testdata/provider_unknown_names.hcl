provider "full" {
  pool_sise = 5
  api_kye   = "hunter2"
  zzz       = "hunter2"
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
