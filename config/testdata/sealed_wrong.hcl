listen = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")

provider "full" {
  api_key = sealed("hunter2-and-more")
  tokens  = [
    sealed("sb1:500e31b4:RbGVCaoxpqXPx4OcTyRtlhqUqevrmpRChkY-9GpZLU5s_5WQhntsmRqAWbxe_O3bgj0e"),
    sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6"),
    sealed("sb1;6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH"),
  ]
  headers = { a = sealed(), b = sealed(5), c = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH", "hunter2") }
  cpus    = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")
  labels  = { (sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OH")) = 5 }
  region  = sealed(env("API_KEY"))
  hostname = sealed("sb1:6d24e2af:L-umzMidCZnJ_5o0hmXAIGBeLZ43IN1N5UzsCHd1ko25SE7kwFhA18yyofucNrD6G0OA")
}

tenant "demo" {
  token_sha256 = [sealed("sb1:6d24e2af:C0W4KIXmtRiHqscTuVoCiRwA0vM8c_mdMl0xWYnpJGY8E4hHoot4FC5jbZNA4tDDDE-D")]
}
