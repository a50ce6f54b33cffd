key_file = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")

provider "full" {
  api_key = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
