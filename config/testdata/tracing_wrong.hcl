# What a tracing block may not say.
tracing {
  endpoint     = "127.0.0.1:4318"
  sample_ratio = 1.5
  headers = {
    "x key" = "a"
    X-Key   = "line one\nline two"
  }
}
tenant "acme" { token_sha256 = ["80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936"] }
provider "local" {}
