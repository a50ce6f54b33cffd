listen = env("API_KEY")

log {
  level = env("API_KEY")
}

providers {
  active = env("API_KEY")
}

provider "full" {
  pool_size = env("API_KEY")
  region    = env("API_KEY")
  labels    = { (env("API_KEY")) = 5 }
}

tenant "demo" {
  token_sha256 = [env("API_KEY")]
  providers    = [env("API_KEY")]
}
