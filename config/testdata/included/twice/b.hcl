provider "full" {
  api_key = "hunter2-and-more"
}

provider "fulle" {
  plugin    = "full"
  pool_size = "7"
}

tenant "gamma" {
  token_sha256 = ["cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"]
  providers    = ["ful"]
}
