listen = env("NOT_SET")

provider "full" {
  api_key = env("NOT_SET_EITHER")
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
