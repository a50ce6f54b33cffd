listen = "127.0.0.1:1"
listen = "127.0.0.1:2"

provider "full" {
  api_key = "hunter2"
  api_key = "hunter2 again"
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
