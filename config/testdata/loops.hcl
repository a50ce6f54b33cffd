provider "full" {
  labels = { note = "${join([for a in [1, 2] : [for b in [1, 2] : "hunter2"]])}" }
  mounts = [for m in ["a", "b"] : "/${m}"]
}

tenant "acme" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
