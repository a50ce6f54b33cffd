provider "full" {
  api_key = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")
  labels  = { note = "key is ${sealed("sb1:6d24e2af:C0W4KIXmtRiHqscTuVoCiRwA0vM8c_mdMl0xWYnpJGY8E4hHoot4FC5jbZNA4tDDDE-D")}" }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
