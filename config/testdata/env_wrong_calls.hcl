provider "full" {
  api_key = env()
  region  = env("A", "b", "hunter2")
  labels  = { a = env(null), b = envv("A") }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
