include = ["included/broken/*.hcl"]

provider "full" {
  pool_size = "not looked at, since blocks are missing"
}
