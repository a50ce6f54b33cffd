provider "full" {
  region    = ["eu"]
  hostname  = true
  api_key   = 7421337
  pool_size = 7.5
  cpus      = "2"
  verbose   = "yes"
  idle      = "soon"
  mounts    = "/a"
  labels    = { a = 1 }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
