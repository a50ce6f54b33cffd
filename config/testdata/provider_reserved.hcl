# A mistake of its own in each: the name is not the only one that is told.
listen = "nowhere"

provider "active" {
  plugin = "e2b"
}

provider "e2b" {
  plugin = "e2b"
}

providers {
  active   = "active"
  fallback = ["e2b"]
}

tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
  providers    = ["active"]
}
