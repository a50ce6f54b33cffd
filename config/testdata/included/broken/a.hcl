tenant "acme" {
  token_sha256 = [
