provider "full" {
  pool_size = env("API_KEY")
  region    = env("API_KEY")
  hostname  = env("API_KEY")
  labels    = { (env("API_KEY")) = 5 }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
