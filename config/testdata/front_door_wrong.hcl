front_door "daytona" {}

front_door {}

front_door "ragflow" {
  path     = "/api/ragflow"
  images   = { "python" = "" }
  tenant   = "deno"
  provider = "other"
  timeout  = "1h"
  wait     = "1h"
}

front_door "opensandbox" {
  path    = "/a/b/c/d/e"
  tenant  = "demo"
  address = "https://sandboxes.example.com"
  images  = { "python" = 3 }
  network = "some"
}

front_door "ragflow" {}

provider "full" {}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
