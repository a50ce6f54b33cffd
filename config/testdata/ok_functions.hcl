state = env("STATE", "./from-default")

provider "full" {
  api_key = file("secrets/key")
  region  = env("REGION")
  labels  = { note = "key is ${file("secrets/key")}" }
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
