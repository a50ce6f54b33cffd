provider "full" {
  region  = {}[env("API_KEY")]
  labels  = { for k in [env("API_KEY"), env("API_KEY")] : k => "x" }
  api_key = env(env("API_KEY"))
  mounts  = [file(env("API_KEY"))]
}

tenant "demo" {
  token_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
}
