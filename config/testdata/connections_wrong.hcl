connections {
  total            = 0
  without_token    = "many"
  shared_addresses = ["10.0.0.0/8", "proxy.example.com", "fe80::1%eth0"]
  per_client       = 3
}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
