# Credentials are no part of the address.
tracing {
  endpoint = "http://user:password@127.0.0.1:4318/v1/traces"
}
tenant "acme" { token_sha256 = ["80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936"] }
provider "local" {}
