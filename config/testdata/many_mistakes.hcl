listne = "127.0.0.1:1"

log {
  level  = "loud"
  format = 7
}

limits {
  output      = 9000000
  max_timeout = "1 hour"
}

providers {
  active = "ful"
}

provider "full" {
  pool_size = "10"
  cpus      = 900
  regoin    = "eu"
}

tenant "Demo" {
  token_sha256 = ["123"]
}

tenant "acme" {
  providers = ["none"]
}

provider "pinned" {
  sha256  = "short"
  cpus    = 0
}
