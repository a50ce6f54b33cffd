providers {
  active   = "full"
  fallback = ["other", "full", "othr", "other"]
}

provider "full" {}

provider "other" {
  plugin = "full"
}

tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
