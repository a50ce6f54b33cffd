provider "full" {
  pool_size = 4   # sandboxes kept ready
  memory_mb = 512 # of each
}

tenant "acme" {
  token_sha256 = [
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" # in use
  ]
}
